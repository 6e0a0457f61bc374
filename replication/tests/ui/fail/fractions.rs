#[derive(tidelock::Replicate)]
struct Both {
    #[net(unit = 8, range = 0.0..=2.0)]
    x: f32,
}

#[derive(tidelock::Replicate)]
struct OneBit {
    #[net(unit = 1, signed)]
    x: f32,
}

#[derive(tidelock::Replicate)]
struct SignOfNothing {
    #[net(signed, step = 0.1, range = 0.0..=1.0)]
    x: f32,
}

#[derive(tidelock::Replicate)]
struct TooFine {
    #[net(mm, range = 0.0..=9000.0)]
    x: f32,
}

#[derive(tidelock::Replicate)]
struct Steps {
    #[net(fixed = 8, step = 0.5)]
    x: f32,
}

#[derive(tidelock::Replicate)]
struct Flat {
    #[net(octahedral, bits = 8)]
    x: [f32; 2],
}

#[derive(tidelock::Replicate)]
struct HowWell {
    #[net(octahedral)]
    x: [f32; 3],
}

fn main() {}
