//! Programs a person can run: arena is the front door.
