#[derive(tidelock::Replicate)]
struct Position {
    x: f32,
    y: f64,
}

fn main() {}
