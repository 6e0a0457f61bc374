#[derive(tidelock::Replicate)]
struct Unknown {
    #[net(quantize = 3)]
    x: u8,
}

#[derive(tidelock::Replicate)]
struct Twice {
    #[net(exact, exact)]
    x: f32,
}

#[derive(tidelock::Replicate)]
#[net(step = 0.1)]
struct OnType {
    x: u8,
}

#[derive(tidelock::Replicate)]
enum OnVariant {
    #[net(exact)]
    A,
}

#[derive(tidelock::Replicate)]
struct LongText {
    #[net(max = 100000)]
    x: String,
}

#[derive(tidelock::Replicate)]
struct Order {
    #[net(order = 99)]
    x: u8,
}

fn main() {}
