//! Declares the counters of a status struct only once.

/// Declares a struct of the status, and a second struct with only its counters, in which they are counted.
macro_rules! counted {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident, counters $counters:ident {
            $($(#[doc = $field_doc:literal])+ $(#[serde($($serde:tt)+)])? $field:ident: $ty:ty,)+
        } {
            $($(#[doc = $counter_doc:literal])+ $(#[serde($($counter_serde:tt)+)])? $counter:ident,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[doc = $field_doc])+ $(#[serde($($serde)+)])? pub $field: $ty,)+
            $($(#[doc = $counter_doc])+ $(#[serde($($counter_serde)+)])? pub $counter: u64,)+
        }

        #[doc = concat!("The counters of a [`", stringify!($name), "`], while they are counted.")]
        #[derive(Debug, Default)]
        pub struct $counters<T> {
            $($(#[doc = $counter_doc])+ pub $counter: T,)+
        }

        impl<T> $counters<T> {
            /// Returns the values, with defaults for the fields that are not counters.
            pub fn read(&self, value: impl Fn(&T) -> u64) -> $name {
                $name { $($counter: value(&self.$counter),)+ ..$name::default() }
            }
        }
    };
}

pub(crate) use counted;
