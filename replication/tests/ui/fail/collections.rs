use std::collections::{BTreeMap, HashMap};

#[derive(tidelock::Replicate)]
struct Unbounded {
    items: Vec<u16>,
}

#[derive(tidelock::Replicate)]
struct Unordered {
    #[net(max = 4)]
    map: HashMap<u8, u8>,
}

#[derive(tidelock::Replicate)]
struct TooMany {
    #[net(max = 65)]
    items: Vec<u16>,
}

#[derive(tidelock::Replicate)]
struct Texts {
    #[net(max = 4)]
    names: Vec<String>,
}

#[derive(tidelock::Replicate)]
struct FloatKeys {
    #[net(max = 4, exact)]
    map: BTreeMap<f32, f32>,
}

#[derive(tidelock::Replicate)]
struct Opaque {
    #[net(opaque)]
    of: BTreeMap<u8, u8>,
}

#[derive(tidelock::Replicate)]
struct OpaqueRange {
    #[net(opaque, max = 10, range = 0..=5)]
    of: u8,
}

#[derive(tidelock::Replicate)]
struct EntityKeys {
    #[net(max = 4)]
    map: BTreeMap<hecs::Entity, u8>,
}

fn main() {}
