const STEP: f64 = 0.01;
const FAR: f64 = 500_000.0;

#[derive(tidelock::Replicate)]
struct Position {
    #[net(step = STEP, range = -FAR..=FAR)]
    x: f32,
}

fn main() {
    let _ = tidelock::layout::Layout::of::<Position>();
}
