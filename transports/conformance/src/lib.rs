//! The test that every Tidelock transport passes.
