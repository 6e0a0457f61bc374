//! Definitions in the schema.

use super::SchemaBuilder;
use crate::definitions::DefinitionEntry;

impl SchemaBuilder {
    /// Registers a type of [definitions](crate::definitions): large values that rarely change. They travel as `bitcode` (version
    /// 0.6) makes them, of which the schema's digest knows nothing but the name: when the type changes, give it another one.
    ///
    /// bitcode takes as little as a bit for an item of a list, so a byte from a hostile host can stand for eight of them: what a
    /// guest then allocates is bounded by [`limits::DEFINITION_BYTES`](crate::netcore::limits::DEFINITION_BYTES) × 8 × the size of an
    /// item. Keep items of lists small, or in boxes.
    #[must_use]
    pub fn definition<T>(mut self, name: &str) -> Self
    where
        T: bitcode::Encode + bitcode::DecodeOwned + Send + Sync + 'static,
    {
        self.definitions.push(DefinitionEntry::new::<T>(name));
        self
    }
}
