//! What rewinding promises, and what it must not be misled by.
