//! The stages of the path of a change, each on its own: 10 000 entities of which a tenth moves.

use criterion::{Criterion, criterion_group, criterion_main};
use hecs::World;
use std::hint::black_box;
use std::time::Duration;
use tidelock::layout::LayoutBuilder;
use tidelock::netcore::bits::{BitReader, BitWriter};
use tidelock::{Config, Peer, Replicate};
use tidelock_benches::cast::{Cast, Full, Position, Rotation};
use tidelock_benches::crowd::{Crowd, Motion};
use tidelock_benches::session::{Frame, Session, Weather};

const ENTITIES: usize = 10_000;
const CHANGED: f32 = 0.1;

fn crowd() -> Crowd {
    Crowd::new(ENTITIES, CHANGED, Motion::Steady)
}

/// Reading the world's columns, comparing, quantising, noting in the history: a peer alone, which tells itself its news.
fn capture(c: &mut Criterion) {
    let mut crowd = crowd();
    let config = Config { local_news: true, session: Some(1), ..Config::default() };
    let mut peer = Peer::alone(Full::schema(), config).expect("the settings are sound");
    let mut world = World::new();
    let mut frame = 0u64;
    let mut tick = |crowd: &mut Crowd, entities: &mut Vec<hecs::Entity>| {
        let now = Duration::from_nanos((frame * 1_000_000_000).div_ceil(60));
        frame += 1;
        crowd.step();
        peer.receive(now, &mut world).expect("time goes on");
        if entities.is_empty() {
            entities.extend((0..crowd.len()).map(|i| Full::spawn(&mut peer, &mut world, crowd, i)));
        }
        while peer.next_step(&mut world).is_some() {}
        Full::show(&mut world, entities, crowd);
        let start = std::time::Instant::now();
        peer.send(now, &mut world).expect("time goes on");
        let took = start.elapsed();
        while peer.poll_news().is_some() {}
        took
    };
    let mut entities = Vec::new();
    c.bench_function("capture", |b| b.iter_custom(|n| (0..n).map(|_| tick(&mut crowd, &mut entities)).sum()));
}

/// A stage of a session, by the wall time that its frames tell.
fn stage(c: &mut Criterion, name: &str, guests: usize, of: impl Fn(&Frame) -> u64) {
    let mut session = Session::<Full>::new(crowd(), guests, Weather::default());
    c.bench_function(name, |b| b.iter_custom(|n| (0..n).map(|_| Duration::from_nanos(of(&session.tick()))).sum()));
}

fn session(c: &mut Criterion) {
    stage(c, "capture and encode, 1 guest", 1, |frame| frame.host_send.wall);
    stage(c, "capture and encode, 16 guests", 16, |frame| frame.host_send.wall);
    stage(c, "acknowledgements of 16 guests", 16, |frame| frame.host_receive.wall);
    stage(c, "decode and apply", 1, |frame| frame.guest_receive[0].wall);
}

/// One value's code, written and read: a small difference.
fn codec<C: Replicate>(c: &mut Criterion, name: &str, by: &[i32]) {
    let mut builder = LayoutBuilder::new();
    C::layout(&mut builder);
    let layout = builder.build().expect("the layout is sound");
    let old: Vec<u32> = (0..layout.words() as u32).map(|i| if i == 0 { 3 } else { 500 + i }).collect();
    let new: Vec<u32> = old.iter().zip(by).map(|(old, by)| old.wrapping_add_signed(*by)).collect();
    let mut w = BitWriter::new();
    c.bench_function(&format!("write a {name}"), |b| {
        b.iter(|| {
            w.clear();
            layout.write(black_box(&new), Some(black_box(&old)), 1, &mut w);
        });
    });
    let bytes = w.to_bytes();
    let mut out = vec![0; layout.words()];
    c.bench_function(&format!("read a {name}"), |b| {
        b.iter(|| layout.read(Some(black_box(&old)), 1, &mut BitReader::new(black_box(&bytes)), &mut out));
    });
    assert_eq!(out, new);
}

fn codecs(c: &mut Criterion) {
    codec::<Position>(c, "position", &[20, -31, 4]);
    codec::<Rotation>(c, "rotation", &[0, 3, -5, 1]);
}

fn quick() -> Criterion {
    Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2))
}

criterion_group!(name = path; config = quick(); targets = capture, session, codecs);
criterion_main!(path);
