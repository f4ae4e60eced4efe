//! Lists and maps of one kind.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::{Inline, quote, show};
use crate::schema::{At, Context, Item};

/// The kind of lists of one kind.
#[derive(Debug)]
pub struct List<K>(K);

/// Returns the kind of lists of `kind`.
pub fn list<K>(kind: K) -> List<K> {
    List(kind)
}

impl<K: Inline> Inline for List<K> {
    type Value = Vec<K::Value>;

    fn describe(&self) -> String {
        let one = self.0.describe();
        format!("a list, each {}", one.strip_prefix("one of ").unwrap_or(&one))
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Vec<K::Value>> {
        let Some(items) = item.get_ref().as_array() else {
            let more = format!(": write [{}]", show(item.get_ref()));
            let single = matches!(item.get_ref(), DeValue::String(_) | DeValue::Integer(_));
            return self.refuse(item, at, context, if single { &more } else { "" });
        };
        let values: Vec<_> = items.iter().map(|item| self.0.read(item, at, context)).collect();
        values.into_iter().collect()
    }

    fn text(&self, value: &Vec<K::Value>) -> String {
        let values: Vec<_> = value.iter().map(|value| self.0.text(value)).collect();
        format!("[{}]", values.join(", "))
    }
}

/// The kind of maps from names to values of one kind.
#[derive(Debug)]
pub struct ByName<K>(K);

/// Returns the kind of maps from names to values of `kind`.
pub fn by_name<K>(kind: K) -> ByName<K> {
    ByName(kind)
}

impl<K: Inline> Inline for ByName<K> {
    type Value = BTreeMap<String, K::Value>;

    fn describe(&self) -> String {
        format!("a table of names, each with {}", self.0.describe())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Self::Value> {
        let Some(table) = item.get_ref().as_table() else {
            return self.refuse(item, at, context, "");
        };
        let mut values = BTreeMap::new();
        for (key, item) in table.iter() {
            let path = format!("{}.{}", at.path, visiond_system::logging::escape(key.get_ref()));
            if let Some(value) = self.0.read(item, &At { path: &path, note: at.note }, context) {
                values.insert(key.get_ref().to_string(), value);
            }
        }
        (values.len() == table.len()).then_some(values)
    }

    fn text(&self, value: &Self::Value) -> String {
        let values: Vec<_> =
            value.iter().map(|(name, value)| format!("{} = {}", quote(name), self.0.text(value))).collect();
        if values.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", values.join(", ")) }
    }
}
