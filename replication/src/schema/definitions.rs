//! Definitions in the schema.

use super::SchemaBuilder;
use crate::definitions::DefinitionEntry;

impl SchemaBuilder {
    /// Registers a type of [definitions](crate::definitions): large values that rarely change. They travel as `bitcode` (version
    /// 0.6) makes them, of which the schema's digest knows nothing but the name: when the type changes, give it another one.
    #[must_use]
    pub fn definition<T>(mut self, name: &str) -> Self
    where
        T: bitcode::Encode + bitcode::DecodeOwned + Send + Sync + 'static,
    {
        self.definitions.push(DefinitionEntry::new::<T>(name));
        self
    }
}
