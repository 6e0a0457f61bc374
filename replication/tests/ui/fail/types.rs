#[derive(tidelock::Replicate)]
struct A {
    list: Vec<u8>,
    text: String,
    pair: (u8, u8),
    borrowed: &'static str,
    twice: Option<Option<u8>>,
    #[net(max = 4)]
    letter: char,
}

fn main() {}
