#[derive(tidelock::Replicate, tidelock::Interpolate, tidelock::Checkpoint)]
struct Generic<T>(T);

#[derive(tidelock::Replicate, tidelock::Interpolate)]
enum Fields {
    A,
    B(u8),
}

#[derive(tidelock::Replicate, tidelock::Checkpoint)]
enum Never {}

#[derive(tidelock::Replicate, tidelock::Checkpoint)]
union Both {
    a: u8,
    b: i8,
}

fn main() {}
