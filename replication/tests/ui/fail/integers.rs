#[derive(tidelock::Replicate)]
struct A {
    #[net(range = 5..=1)]
    empty: u8,
    #[net(range = 0..=0x1_0000_0000)]
    wide: u64,
    #[net(order = 3)]
    order: u64,
    #[net(step = 1)]
    step: u8,
    size: usize,
    huge: u128,
    #[net(range = 0..=1)]
    flag: bool,
}

#[derive(tidelock::Replicate)]
struct B {
    #[net(range = 0..=300)]
    high: u8,
    #[net(range = -1..=3)]
    low: u32,
    #[net(range = -129..=3)]
    lower: i8,
}

fn main() {}
