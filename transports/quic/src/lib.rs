//! Tidelock over QUIC.
