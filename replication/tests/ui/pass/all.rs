use tidelock::{Checkpoint, Interpolate, Replicate};

const STEP: f32 = 0.25;
const REACH: f64 = 100.0;
const MOST: u16 = 900;

#[derive(Clone, Replicate, Interpolate, Checkpoint)]
struct Unit;

#[derive(Clone, Replicate, Interpolate, Checkpoint)]
struct Empty {}

#[derive(Clone, Replicate, Interpolate, Checkpoint)]
struct Consts {
    #[net(step = STEP, range = -REACH..=REACH)]
    x: f32,
    #[net(range = 1..=MOST)]
    n: u16,
    #[net(range = -1..=1_000_000)]
    wide: i64,
    #[net(range = 0..=4_294_967_295)]
    all: u64,
    r#type: u8,
    #[net(step = 0.5, range = 0.0..=1.0)]
    #[net(order = 3, hold)]
    split: f32,
}

mod moved {
    pub use ::tidelock as elsewhere;
}

#[derive(Clone, Replicate, Interpolate, Checkpoint)]
#[net(crate = moved::elsewhere)]
struct Elsewhere(bool, Option<std::primitive::u8>);

// Names of the prelude mean something else here; what the derives write must not care.
#[allow(dead_code)]
mod shadows {
    struct Result;
    struct Option;
    fn Ok() {}
    #[derive(Clone, tidelock::Replicate, tidelock::Interpolate, tidelock::Checkpoint)]
    struct Shadowed {
        #[net(step = 0.5, range = 0.0..=1.0)]
        x: [f32; 2],
        y: bool,
        out: u8,
        from: u32,
        into: i8,
        t: i16,
    }
    #[derive(Clone, tidelock::Replicate, tidelock::Interpolate, tidelock::Checkpoint)]
    enum Err {
        Ok,
        Some,
        None,
    }
}

fn main() {
    let layout = tidelock::layout::Layout::of::<Consts>().unwrap();
    assert_eq!(layout.words(), 6);
    assert_eq!(layout.fields()[4].name, "type");
}
