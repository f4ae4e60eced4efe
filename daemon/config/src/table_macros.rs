//! Macros that declare the tables and keys of the file.
//!
//! Each field of a [`section!`] declares all of a key: doc comment, name, Rust type, kind (how its value is read, checked and
//! written), and what applies if it is absent. The macro generates the struct, its `Default`, and a
//! [`Section`](super::tables::Section): the reader, the writer, and the list of keys that the reference and the annotated
//! file are printed from.
//!
//! ```text
//! section! {
//!     /// `[buffers]`
//!     pub struct BufferConfig {
//!         /// Buffers of a camera.
//!         count: usize as whole(3..=32) => default(4),
//!     }
//! }
//! ```
//!
//! After `=>` comes what applies if the key is absent:
//! - `default(VALUE)`: that value.
//! - `required(EXAMPLE)`: the file is rejected. The example is TOML.
//! - `optional(EXAMPLE)`: `None`.
//! - `derived((EXAMPLE, VALUE))`: that value, which the reference does not show.
//! - `part`: the default of a table.
//! - `flatten`: for a [`union!`] whose `type` and keys are in this table.

/// Declares a table of the file. See the module's documentation.
macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident {
            $(
                $(#[doc = $field_doc:literal])+
                $field:ident $([$key:literal])? : $ty:ty as $kind:expr => $presence:ident $(($arg:expr))?
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[doc = $field_doc])+ pub $field: $ty),+
        }

        impl Default for $name {
            /// Every key absent; a required one is empty.
            fn default() -> Self {
                Self { $($field: section!(@absent $presence $($arg)?)),+ }
            }
        }

        impl $crate::tables::Section for $name {
            fn keys() -> Vec<$crate::schema::Key> {
                vec![$($crate::schema::Key {
                    name: section!(@name $field $($key)?),
                    doc: $crate::schema::plain(concat!($($field_doc, "\n"),+)),
                    shape: section!(@shape $presence $kind, $ty),
                    presence: section!(@presence $presence $kind, $ty, $($arg)?),
                }),+]
            }

            fn read(table: &mut $crate::tables::TableReader<'_, '_>) -> Option<Self> {
                // Every key is read before the first `?`, so that every error is found.
                let ($($field,)+) = ($(section!(
                    @read $presence table, section!(@name $field $($key)?), concat!($($field_doc, "\n"),+), $kind,
                    $ty, $($arg)?
                ),)+);
                Some(Self { $($field: section!(@take $presence $field)),+ })
            }

            fn write(&self) -> $crate::schema::Entries {
                let mut entries = Vec::new();
                $(section!(@write $presence entries, section!(@name $field $($key)?), $kind, &self.$field);)+
                entries
            }
        }
    };

    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };

    (@absent default $value:expr) => { $value };
    (@absent derived $value:expr) => { $value.1 };
    (@absent $presence:ident $($example:expr)?) => { Default::default() };

    (@shape flatten $kind:expr, $ty:ty) => {
        $crate::schema::Shape::Union(<$ty as $crate::tables::Union>::variants())
    };
    (@shape $presence:ident $kind:expr, $ty:ty) => {
        (section!(@kind $presence $kind, $ty).shape)()
    };

    // Ties the kind to the type of the field, so that the compiler infers the type of the kind.
    (@kind optional $kind:expr, $ty:ty) => { $crate::schema::for_option::<$ty>($kind) };
    (@kind $presence:ident $kind:expr, $ty:ty) => { std::convert::identity::<$crate::schema::KeyKind<$ty>>($kind) };

    (@presence default $kind:expr, $ty:ty, $value:expr) => {
        $crate::schema::Presence::Default(section!(@kind default $kind, $ty).inline(&$value))
    };
    (@presence required $kind:expr, $ty:ty, $example:expr) => {
        $crate::schema::Presence::Required($example.to_owned())
    };
    (@presence optional $kind:expr, $ty:ty, $example:expr) => {
        $crate::schema::Presence::Optional($example.to_owned())
    };
    (@presence derived $kind:expr, $ty:ty, $value:expr) => {
        $crate::schema::Presence::Optional($value.0.to_owned())
    };
    (@presence $presence:ident $kind:expr, $ty:ty,) => { $crate::schema::Presence::Parts };

    (@read default $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty, $value:expr) => {
        $table.or_default($name, $doc, &$kind, $value)
    };
    (@read derived $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty, $value:expr) => {
        $table.optional($name, $doc, &$kind).unwrap_or($value.1)
    };
    (@read part $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty,) => {
        $table.or_default($name, $doc, &$kind, Default::default())
    };
    (@read flatten $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty,) => { $table.union::<$ty>() };
    (@read $required_or_optional:ident $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty, $($example:expr)?) => {
        $table.$required_or_optional($name, $doc, &$kind)
    };

    (@take required $field:ident) => { $field? };
    (@take flatten $field:ident) => { $field? };
    (@take $presence:ident $field:ident) => { $field };

    (@write optional $entries:ident, $name:expr, $kind:expr, $value:expr) => {
        $entries.extend($value.as_ref().map(|value| ($name, ($kind.write)(value))))
    };
    (@write flatten $entries:ident, $name:expr, $kind:expr, $value:expr) => {
        $entries.extend($crate::tables::write_union($value))
    };
    (@write $presence:ident $entries:ident, $name:expr, $kind:expr, $value:expr) => {
        $entries.extend([($name, ($kind.write)($value))])
    };
}

/// Declares an enum whose variant `type` selects; a variant holds a `Section`, or nothing.
macro_rules! union {
    (
        $(#[doc = $doc:literal])+
        pub enum $name:ident {
            $($(#[doc = $variant_doc:literal])+ $variant:ident $(($section:ty))? = $tag:literal),+ $(,)?
        }
        $(hint: $hint:path)?
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $($(#[doc = $variant_doc])+ $variant $(($section))?),+
        }

        impl $crate::tables::Union for $name {
            fn variants() -> Vec<$crate::schema::Variant> {
                vec![$($crate::schema::Variant {
                    name: $tag,
                    doc: $crate::schema::plain(concat!($($variant_doc, "\n"),+)),
                    keys: union!(@keys $($section)?),
                }),+]
            }

            fn read(name: &str, table: &mut $crate::tables::TableReader<'_, '_>) -> Option<Self> {
                $(if name == $tag {
                    return union!(@read $name $variant table, $($section)?);
                })+
                let _ = table;
                None
            }

            fn hint(other: &str) -> Option<&'static str> {
                union!(@hint other $($hint)?)
            }

            fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $tag),+
                }
            }

            fn write(&self) -> $crate::schema::Entries {
                $(union!(@write self, $name $variant, $($section)?);)+
                Vec::new()
            }
        }
    };

    (@hint $other:ident) => {{
        let _ = $other;
        None
    }};
    (@hint $other:ident $hint:path) => { $hint($other) };
    (@keys) => { Vec::new() };
    (@keys $section:ty) => { <$section as $crate::tables::Section>::keys() };
    (@read $name:ident $variant:ident $table:ident,) => { Some($name::$variant) };
    (@read $name:ident $variant:ident $table:ident, $section:ty) => {
        <$section as $crate::tables::Section>::read($table).map($name::$variant)
    };
    (@write $this:ident, $name:ident $variant:ident,) => {};
    (@write $this:ident, $name:ident $variant:ident, $section:ty) => {
        if let $name::$variant(section) = $this {
            return $crate::tables::Section::write(section);
        }
    };
}

pub(crate) use {section, union};
