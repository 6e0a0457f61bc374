//! The line that a guest types: what is accepted is written as a line that means the same, and a refusal has words.

use tidelock_quic::Address;

/// The whole input is the line, if it is UTF-8.
pub fn run(data: &[u8]) {
    let Ok(line) = std::str::from_utf8(data) else { return };
    match line.parse::<Address>() {
        Ok(address) => {
            let written = address.to_string();
            assert_eq!(written.parse(), Ok(address), "{line:?} was written as {written:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// One of each sort of place, and lines that are wrong in one point.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let fingerprint = "0123456789abcdef".repeat(4);
    let places = ["127.0.0.1:1", "[::1]:65535", "[fe80::1%3]:4433", "play.example.org:4433", "a_b-c:80", "a:0", "[::1:1", ":1"];
    let whole = places.iter().map(|place| format!("{place}#{fingerprint}").into_bytes());
    whole.chain([b"127.0.0.1:1#0123".to_vec(), format!(" localhost:1#{}\n", fingerprint.to_uppercase()).into_bytes()]).collect()
}
