#[derive(tidelock::Replicate)]
struct A {
    #[net(angle, bits = 40)]
    fine: f32,
}

#[derive(tidelock::Replicate)]
struct B {
    #[net(quat, bits = 10)]
    three: [f32; 3],
    #[net(quat)]
    no_bits: [f32; 4],
    #[net(quat, bits = 20)]
    many_bits: [f32; 4],
    #[net(angle)]
    angle: f32,
    #[net(quat, bits = 10)]
    scalar: f32,
    #[net(angle, bits = 10, step = 0.1)]
    both: f32,
}

#[derive(tidelock::Interpolate)]
struct C {
    #[net(angle, bits = 10)]
    whole: u8,
}

fn main() {}
