#[derive(tidelock::Replicate)]
struct A {
    x: u8,
}

#[derive(tidelock::Replicate)]
struct B {
    #[net(exact)]
    a: A,
    #[net(max = 3)]
    many: [Option<A>; 2],
}

fn main() {}
