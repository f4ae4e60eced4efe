//! Macros that declare the tables and keys of the file.
//!
//! Each field of a [`section!`] declares all of a key: doc comment, name, Rust type, kind (how its value is read, checked and
//! written), and what applies if it is absent. The macro generates the struct, its `Default`, a [`Part`](super::tables::Part)
//! with the same fields and their places in a file, and a [`Section`](super::tables::Section): the reader, the writer, and the
//! list of keys that the reference and the annotated file are printed from.
//!
//! After `=>` comes what applies if the key is absent:
//! - `default(VALUE)`: that value. For a [`Part`](super::tables::Part), `part`: the part's default.
//! - `required(EXAMPLE)`: the file is rejected; the example is TOML. For a part, `required_part`.
//! - `optional(EXAMPLE)`: `None`. For a part, `optional_part`.
//! - `derived((EXAMPLE, VALUE))`: that value, which the reference does not show.
//! - `flatten`: for a [`union!`] whose `type` and keys are in this table.
//! - `inherited`: not a key of this table. [`Document::config`](super::Document::config) copies it from another one.
//!
//! After the struct, `example:` may have a short table as TOML, which errors show where there is something other than a table.

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
        $(example: $example:literal)?
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[doc = $field_doc])+ pub $field: $ty),+
        }

        impl Default for $name {
            /// The value when every key is absent; a required one is empty.
            fn default() -> Self {
                Self { $($field: section!(@absent $presence $($arg)?)),+ }
            }
        }

        // The struct below has no name outside.
        const _: () = {
            #[derive(Debug, Clone)]
            pub struct Read {
                $(pub $field: section!(@field $presence $ty)),+
            }

            impl $crate::tables::Part for $name {
                type Read = Read;

                fn of(read: Read) -> Self {
                    Self { $($field: section!(@of $presence read.$field, $($arg)?)),+ }
                }
            }
        };

        impl $crate::tables::Section for $name {
            fn keys() -> Vec<$crate::schema::Key> {
                let mut keys = Vec::new();
                $(section!(@key $presence keys, $crate::schema::Key {
                    name: section!(@name $field $($key)?),
                    doc: $crate::schema::plain(concat!($($field_doc, "\n"),+)),
                    shape: section!(@shape $presence $kind, $ty),
                    presence: section!(@presence $presence $kind, $ty, $($arg)?),
                });)+
                keys
            }

            $(fn example() -> Option<&'static str> {
                Some($example)
            })?

            fn read(table: &mut $crate::tables::TableReader<'_, '_>) -> $crate::tables::Read<Self> {
                $crate::tables::Read::<Self> { $($field: section!(
                    @read $presence table, section!(@name $field $($key)?), concat!($($field_doc, "\n"),+), $kind,
                    $ty, $($arg)?
                )),+ }
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

    (@key inherited $keys:ident, $key:expr) => {};
    (@key $presence:ident $keys:ident, $key:expr) => { $keys.extend([$key]) };

    (@absent default $value:expr) => { $value };
    (@absent derived $value:expr) => { $value.1 };
    (@absent $presence:ident $($example:expr)?) => { Default::default() };

    (@field optional $ty:ty) => { $crate::tables::Field<<$ty as IntoIterator>::Item> };
    (@field default $ty:ty) => { $crate::tables::Field<$ty> };
    (@field derived $ty:ty) => { $crate::tables::Field<$ty> };
    (@field inherited $ty:ty) => { () };
    (@field required $ty:ty) => { $crate::tables::Field<$ty> };
    (@field $part:ident $ty:ty) => { $crate::tables::Field<$crate::tables::Read<$ty>> };

    (@of optional $field:expr, $example:expr) => { $field.value };
    (@of default $field:expr, $value:expr) => { $field.value.unwrap_or_else(|| $value) };
    (@of derived $field:expr, $value:expr) => { $field.value.unwrap_or_else(|| $value.1) };
    (@of required $field:expr, $example:expr) => { $field.value.unwrap_or_default() };
    (@of inherited $field:expr,) => {{
        let () = $field;
        Default::default()
    }};
    (@of $part:ident $field:expr,) => { $field.value.map_or_else(Default::default, $crate::tables::Part::of) };

    (@shape flatten $kind:expr, $ty:ty) => {
        $crate::schema::Shape::Union(<$ty as $crate::tables::Union>::variants())
    };
    (@shape $presence:ident $kind:expr, $ty:ty) => {
        (section!(@kind $presence $kind, $ty).shape)()
    };

    // Ties the kind to the type of the field, so that the compiler infers the type of the kind.
    (@kind optional $kind:expr, $ty:ty) => { $crate::schema::for_option::<$ty, _>($kind) };
    (@kind optional_part $kind:expr, $ty:ty) => { $crate::schema::for_option::<$ty, _>($kind) };
    (@kind $presence:ident $kind:expr, $ty:ty) => { std::convert::identity::<$crate::schema::KeyKind<$ty, _>>($kind) };

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
    (@presence $part:ident $kind:expr, $ty:ty,) => { $crate::schema::Presence::Parts };

    (@read default $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty, $value:expr) => {
        $table.or_default($name, $doc, &$kind, $value)
    };
    (@read derived $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty, $value:expr) => {
        $table.optional($name, $doc, &$kind).or($value.1)
    };
    (@read required $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty, $example:expr) => {
        $table.required($name, $doc, &$kind)
    };
    (@read required_part $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty,) => {
        $table.required($name, $doc, &section!(@kind required_part $kind, $ty))
    };
    (@read inherited $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty,) => { () };
    (@read flatten $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty,) => { $table.union::<$ty>() };
    (@read $optional:ident $table:ident, $name:expr, $doc:expr, $kind:expr, $ty:ty, $($example:expr)?) => {
        $table.optional($name, $doc, &section!(@kind $optional $kind, $ty))
    };

    (@write optional $entries:ident, $name:expr, $kind:expr, $value:expr) => {
        $entries.extend($value.as_ref().map(|value| ($name, ($kind.write)(value))))
    };
    (@write optional_part $entries:ident, $name:expr, $kind:expr, $value:expr) => {
        section!(@write optional $entries, $name, $kind, $value)
    };
    (@write inherited $entries:ident, $name:expr, $kind:expr, $value:expr) => {};
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

        // The enum below has no name outside.
        const _: () = {
            // One value exists for each table of the file, while it is read.
            #[allow(clippy::large_enum_variant)]
            #[derive(Debug, Clone)]
            pub enum Read {
                $($variant $(($crate::tables::Read<$section>))?),+
            }

            impl $crate::tables::Part for $name {
                type Read = Read;

                fn of(read: Read) -> Self {
                    match read {
                        $(Read::$variant $((union!(@bind section $section)))? => $name::$variant $((
                            <$section as $crate::tables::Part>::of(section)
                        ))?),+
                    }
                }
            }
        };

        impl $crate::tables::Union for $name {
            fn variants() -> Vec<$crate::schema::Variant> {
                vec![$($crate::schema::Variant {
                    name: $tag,
                    doc: $crate::schema::plain(concat!($($variant_doc, "\n"),+)),
                    keys: union!(@keys $($section)?),
                }),+]
            }

            fn read(name: &str, table: &mut $crate::tables::TableReader<'_, '_>) -> Option<$crate::tables::Read<Self>> {
                type Read = $crate::tables::Read<$name>;
                match name {
                    $($tag => Some(union!(@read $variant table, $($section)?)),)+
                    _ => None,
                }
            }

            $(fn hint(other: &str) -> Option<&'static str> {
                $hint(other)
            })?

            fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $tag),+
                }
            }

            fn write(&self) -> $crate::schema::Entries {
                match self {
                    $(Self::$variant $((union!(@bind section $section)))? => union!(@write $(section, $section)?)),+
                }
            }
        }
    };

    // The name of a variant's table.
    (@bind $name:ident $section:ty) => { $name };
    (@write) => { Vec::new() };
    (@write $name:ident, $section:ty) => { <$section as $crate::tables::Section>::write($name) };
    (@keys) => { Vec::new() };
    (@keys $section:ty) => { <$section as $crate::tables::Section>::keys() };
    (@read $variant:ident $table:ident,) => { Read::$variant };
    (@read $variant:ident $table:ident, $section:ty) => {
        Read::$variant(<$section as $crate::tables::Section>::read($table))
    };
}

pub(crate) use {section, union};
