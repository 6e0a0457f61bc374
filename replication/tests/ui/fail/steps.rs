#[derive(tidelock::Replicate)]
struct A {
    #[net(step = 0.01, range = 0.0..1.0)]
    half_open: f32,
    #[net(step = 0.01, range = 0.0)]
    no_range: f32,
}

#[derive(tidelock::Replicate)]
struct B {
    #[net(step = 0.01)]
    no_range: f32,
    #[net(range = 0.0..=1.0)]
    no_step: f32,
    #[net(step = 0.1, range = 0.0..=0.01)]
    one_step: f32,
    #[net(step = 0.01, range = 1.0..=-1.0)]
    empty: f32,
    #[net(step = -0.01, range = -1.0..=1.0)]
    negative: f32,
    #[net(step = 0.01, range = -500000.0..=500000.0)]
    too_fine: f32,
    #[net(exact)]
    double: f64,
}

fn main() {}
