#[derive(tidelock::Replicate)]
struct Between {
    #[net(fixed = 2, range = 0.0..=0.3)]
    x: f32,
}

fn main() {
    let _ = tidelock::layout::Layout::of::<Between>();
}
