//! The line that a host prints and a guest types: `address:port#fingerprint`.

use crate::identity::Fingerprint;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use thiserror::Error;

/// Where a host is, and who it must be: `192.0.2.7:4433#…`, `[2001:db8::7]:4433#…` or `play.example.org:4433#…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(crate) place: Place,
    pub(crate) fingerprint: Fingerprint,
}

/// The part before the `#`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Needs no look-up.
    Numeric(SocketAddr),
    /// A host name, to be looked up, and a port.
    Named(String, u16),
}

/// What is wrong with an address that somebody typed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    /// There is no `#`.
    #[error("the part from '#' on is missing: the host prints address:port#fingerprint, copy all of it")]
    NoFingerprint,
    /// The fingerprint is cut off, or has something behind it.
    #[error("the fingerprint after '#' has {0} characters, not 64: copy all of it")]
    FingerprintLength(usize),
    /// Not a hexadecimal digit.
    #[error("the fingerprint has {0:?}, which is no hexadecimal digit")]
    FingerprintDigit(char),
    /// There is nothing before the port.
    #[error("the address before ':' is missing")]
    NoHost,
    /// There is no `:port`.
    #[error("the port is missing: write address:port#fingerprint")]
    NoPort,
    /// Not a number from 1 to 65535.
    #[error("{0:?} is no port: ports are numbers from 1 to 65535")]
    Port(String),
    /// What stands in brackets, or should.
    #[error("{0:?} is no IPv6 address in brackets: write [address]:port#fingerprint")]
    Ipv6(String),
    /// Longer than any host name, or with characters that none has.
    #[error("{0:?} is no host name")]
    HostName(String),
}

impl FromStr for Address {
    type Err = AddressError;

    /// White space around the whole is ignored; hexadecimal digits may be of either case.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (place, fingerprint) = text.trim().split_once('#').ok_or(AddressError::NoFingerprint)?;
        Ok(Self { place: parse_place(place)?, fingerprint: parse_fingerprint(fingerprint)? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Numeric(address) => write!(f, "{address}#{}", self.fingerprint),
            Place::Named(name, port) => write!(f, "{name}:{port}#{}", self.fingerprint),
        }
    }
}

fn parse_place(place: &str) -> Result<Place, AddressError> {
    if place.starts_with('[') {
        let (_, port) = place.rsplit_once("]:").ok_or_else(|| match place.ends_with(']') {
            true => AddressError::NoPort,
            false => AddressError::Ipv6(place.into()),
        })?;
        parse_port(port)?;
        // The standard parser takes the scope (%3) along.
        return place.parse().map(Place::Numeric).map_err(|_| AddressError::Ipv6(place.into()));
    }
    let (host, port) = place.rsplit_once(':').ok_or(AddressError::NoPort)?;
    if host.contains(':') {
        return Err(AddressError::Ipv6(place.into()));
    }
    let port = parse_port(port)?;
    match host.parse() {
        Ok(ip) => Ok(Place::Numeric(SocketAddr::new(ip, port))),
        Err(_) if host.is_empty() => Err(AddressError::NoHost),
        Err(_) if is_host_name(host) => Ok(Place::Named(host.into(), port)),
        Err(_) => Err(AddressError::HostName(host.into())),
    }
}

fn parse_port(port: &str) -> Result<u16, AddressError> {
    match port.parse() {
        _ if port.is_empty() => Err(AddressError::NoPort),
        Ok(number) if number != 0 && port.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
        _ => Err(AddressError::Port(port.into())),
    }
}

fn is_host_name(host: &str) -> bool {
    host.len() <= HOST_NAME_BYTES && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

fn parse_fingerprint(text: &str) -> Result<Fingerprint, AddressError> {
    let mut bytes = [0u8; 32];
    let length = text.chars().count();
    if length != 2 * bytes.len() {
        return Err(AddressError::FingerprintLength(length));
    }
    for (at, digit) in text.chars().enumerate() {
        let value = digit.to_digit(16).ok_or(AddressError::FingerprintDigit(digit))?;
        bytes[at / 2] = bytes[at / 2] << 4 | value as u8;
    }
    Ok(Fingerprint(bytes))
}

/// The longest name that DNS can hold.
const HOST_NAME_BYTES: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn error(place: &str) -> AddressError {
        format!("{place}#{HEX}").parse::<Address>().unwrap_err()
    }

    #[test]
    fn what_is_written_is_read() {
        for place in ["127.0.0.1:1", "[::1]:65535", "[fe80::1%3]:4433", "play.example.org:4433", "localhost:80"] {
            let text = format!("{place}#{HEX}");
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
            assert_eq!(format!("  {}\n", text.to_uppercase()).parse::<Address>().unwrap().fingerprint.to_string(), HEX);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!("1.2.3.4:5".parse::<Address>(), Err(AddressError::NoFingerprint));
        assert_eq!("1.2.3.4:5#".parse::<Address>(), Err(AddressError::FingerprintLength(0)));
        assert_eq!(format!("1.2.3.4:5#{}", &HEX[1..]).parse::<Address>(), Err(AddressError::FingerprintLength(63)));
        assert_eq!(format!("1.2.3.4:5#ü{}", &HEX[1..]).parse::<Address>(), Err(AddressError::FingerprintDigit('ü')));
        assert_eq!(error(""), AddressError::NoPort);
        assert_eq!(error("example.org"), AddressError::NoPort);
        assert_eq!(error("example.org:"), AddressError::NoPort);
        assert_eq!(error("[::1]"), AddressError::NoPort);
        assert_eq!(error(":4433"), AddressError::NoHost);
        assert_eq!(error("a:65536"), AddressError::Port("65536".into()));
        assert_eq!(error("a:0"), AddressError::Port("0".into()));
        assert_eq!(error("a:+80"), AddressError::Port("+80".into()));
        assert_eq!(error("::1:4433"), AddressError::Ipv6("::1:4433".into()));
        assert_eq!(error("[::1:4433"), AddressError::Ipv6("[::1:4433".into()));
        assert_eq!(error("[::g]:4433"), AddressError::Ipv6("[::g]:4433".into()));
        assert_eq!(error("a b:4433"), AddressError::HostName("a b".into()));
        assert_eq!(error(&format!("{}:1", "a".repeat(254))), AddressError::HostName("a".repeat(254)));
    }
}
