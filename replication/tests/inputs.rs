//! Inputs reach the host for the right tick, in weather, at any frame rate, over stalls; each press fires exactly once.

mod common;
mod input_rig;

use common::weather;
use hecs::{Entity, World};
use input_rig::{Forger, Program};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidelock::netcore::limits;
use tidelock::netcore::tick::Tick;
use tidelock::policy::{Host, Owner};
use tidelock::{Config, Input, Interpolate, News, Peer, PeerId, Press, Replicate, Schema, Source};
use tidelock_loopback::{Conditions, Direction, Network};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    x: f32,
    jump: Press,
    number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Place {
    #[net(step = 0.01, range = -5000.0..=5000.0)]
    x: f32,
}

/// Steered by its guest, moved by the host.
#[derive(Clone, Copy, Default)]
struct Body;
/// Moved by its owner.
#[derive(Clone, Copy, Default)]
struct Runner;

fn schema(inputs: bool) -> Schema {
    let schema = Schema::builder("inputs").component::<Place>("place", |c| c.interpolate());
    let schema = schema.kind::<Body>("body", Host::default()).kind::<Runner>("runner", Owner::default());
    if inputs { schema.input::<Stick>("stick") } else { schema }.build().unwrap()
}

/// What a guest did: its input by tick, and how often it had pressed in all.
#[derive(Default)]
struct Deeds {
    by_tick: BTreeMap<Tick, (Stick, u64)>,
    stick: Stick,
    pressed: u64,
}

/// What the host made of a guest's inputs.
#[derive(Default)]
struct Made {
    arrived: u64,
    repeated: u64,
    absent: u64,
    fired: u64,
    last: Option<Tick>,
    run: Tick,
}

struct Stage {
    seed: u64,
    network: Network,
    chance: common::Rng,
    /// The host first.
    programs: Vec<Program>,
    deeds: Vec<Deeds>,
    made: Vec<Made>,
    now: Duration,
    presses: bool,
    /// What the first guest's transport sends besides.
    forged: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Stage {
    /// `frames`: frames a second, the host's first.
    fn new(seed: u64, frames: &[u64], weather: Conditions, config: &Config) -> Self {
        let network = Network::new(seed);
        let forged = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let mut programs = Vec::new();
        for (i, rate) in frames.iter().enumerate() {
            let config = Config { session: Some(seed), ..config.clone() };
            let peer = match i {
                0 => Peer::host(schema(true), network.host(), config).unwrap(),
                1 => {
                    let transport = Forger { inner: network.join(weather, weather), forged: forged.clone() };
                    Peer::join(schema(true), transport, config).unwrap()
                }
                _ => Peer::join(schema(true), network.join(weather, weather), config).unwrap(),
            };
            // nobody's frames begin together
            let next = Duration::from_micros(1 + 3_700 * i as u64);
            programs.push(Program { peer, world: World::new(), frame: Duration::from_nanos(1_000_000_000 / rate), next });
        }
        let deeds = frames.iter().map(|_| Deeds::default()).collect();
        let made = frames.iter().map(|_| Made::default()).collect();
        let chance = common::Rng::new(seed);
        Self { seed, network, chance, programs, deeds, made, now: Duration::ZERO, presses: true, forged }
    }

    fn stall(&mut self, program: usize, time: Duration) {
        self.programs[program].next = self.now + time;
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let next = (0..self.programs.len()).min_by_key(|i| self.programs[*i].next).unwrap();
            let program = &mut self.programs[next];
            if program.next > until {
                self.now = until;
                return;
            }
            self.now = program.next;
            program.next += program.frame;
            if next == 0 { self.host_frame() } else { self.guest_frame(next) }
        }
    }

    fn guest_frame(&mut self, i: usize) {
        let Self { seed, chance, programs, deeds, now, presses, .. } = self;
        let (program, deeds) = (&mut programs[i], &mut deeds[i]);
        if chance.chance(30) {
            deeds.stick.x = chance.below(201) as f32 * 0.01 - 1.0;
        }
        if *presses && chance.chance(15) {
            deeds.stick.jump.press();
            deeds.pressed += 1;
        }
        deeds.stick.number = chance.below(3) as u32;
        program.peer.set_input(&deeds.stick).unwrap();
        let pressed = deeds.pressed;
        let local = program.peer.local();
        program.run(*now, |_, step| {
            let input: Input<Stick> = step.input(local).unwrap();
            assert_eq!(input.source, Source::Own);
            let told = deeds.by_tick.insert(step.tick(), (input.value, pressed));
            assert!(told.is_none(), "SEED={seed} tick {} ran twice", step.tick());
            assert!(step.input::<Stick>(PeerId::HOST).is_err(), "a guest is not told what others do");
        });
    }

    fn host_frame(&mut self) {
        let Self { seed, programs, deeds, made, now, .. } = self;
        let guests: Vec<PeerId> = programs.iter().map(|p| p.peer.local()).collect();
        programs[0].run(*now, |_, step| {
            for (i, guest) in guests.iter().enumerate().skip(1) {
                let Ok(input) = step.input::<Stick>(*guest) else { continue };
                let at = format!("SEED={seed} guest {i} tick {}", step.tick());
                made[i].note(step.tick(), &input, &deeds[i], &at);
            }
        });
        while let Some(news) = programs[0].peer.poll_news() {
            assert!(!matches!(news, News::Left { .. } | News::Misbehaved { .. }), "SEED={seed}: {news:?}");
        }
    }

    /// What was made of a guest's inputs since the last call.
    fn take_made(&mut self, guest: usize) -> Made {
        let fresh =
            Made { fired: self.made[guest].fired, last: self.made[guest].last, run: self.made[guest].run, ..Made::default() };
        std::mem::replace(&mut self.made[guest], fresh)
    }

    /// Presses stop, and all of them must have fired.
    fn finish(&mut self) {
        self.presses = false;
        self.run(Duration::from_secs(3));
        for guest in 1..self.programs.len() {
            let (fired, pressed) = (self.made[guest].fired, self.deeds[guest].pressed);
            assert!(pressed > 0);
            assert_eq!(fired, pressed, "SEED={} guest {guest}: presses fired and pressed", self.seed);
            let stats = self.programs[0].peer.stats(self.programs[guest].peer.local()).unwrap();
            assert_eq!(stats.link.malformed, 0, "SEED={}", self.seed);
        }
    }
}

impl Made {
    fn note(&mut self, tick: Tick, input: &Input<Stick>, deeds: &Deeds, at: &str) {
        assert!(tick > self.run, "{at}: ran before");
        self.run = tick;
        let repeat = limits::INPUT_REPEAT.as_millis() as u64 * 60 / 1000;
        let held = |tick: Tick| deeds.by_tick.get(&tick).unwrap_or_else(|| panic!("{at}: {tick} is no tick of the guest's")).0;
        let fires = input.pressed(|stick| stick.jump);
        match input.source {
            Source::Arrived => {
                assert_eq!(input.value, held(tick), "{at}: not what the guest did");
                assert_eq!(input.before, self.last.map(held).unwrap_or_default(), "{at}: not the one before");
                self.fired += u64::from(fires);
                assert_eq!(self.fired, deeds.by_tick[&tick].1, "{at}: presses fired so far, and pressed");
                self.last = Some(tick);
                self.arrived += 1;
            }
            Source::Repeated(age) => {
                assert_eq!(self.last.map(|last| last.plus(age.into())), Some(tick), "{at}: repeats another one");
                assert!(u64::from(age) <= repeat, "{at}: repeats for too long");
                assert_eq!((input.value, fires), (held(tick.minus(age.into())), 0), "{at}");
                self.repeated += 1;
            }
            Source::Absent => {
                assert!(self.last.is_none_or(|last| tick.since(last) > repeat), "{at}: absent too early");
                assert_eq!((input.value, fires), (Stick::default(), 0), "{at}");
                self.absent += 1;
            }
            Source::Own => panic!("{at}: the host is not the guest"),
        }
    }

    fn missed(&self) -> u64 {
        self.repeated + self.absent
    }
}

fn foul() -> Conditions {
    Conditions { jitter: Duration::from_millis(20), reorder: 0.02, duplicate: 0.02, ..weather(90, 0.05) }
}

#[test]
fn twenty_thousand_ticks_in_foul_weather() {
    for seed in common::seeds(2) {
        let mut stage = Stage::new(seed, &[60, 60], foul(), &Config::default());
        stage.run(Duration::from_secs(15));
        stage.take_made(1);
        stage.run(Duration::from_secs(20_000 / 60));
        let made = stage.take_made(1);
        assert!(made.arrived > 19_000, "SEED={seed}: {} ticks arrived", made.arrived);
        assert!(made.missed() * 200 < made.arrived, "SEED={seed}: {} of {} missed", made.missed(), made.arrived);
        assert_eq!(made.absent, 0, "SEED={seed}");
        let guest = &stage.programs[1].peer;
        let lead = guest.lead().unwrap();
        assert!((100..320).contains(&lead.as_millis()), "SEED={seed}: a lead of {lead:?}");
        let report = stage.programs[0].peer.input_report(guest.local()).unwrap();
        assert!(report.folded.is_some_and(|tick| stage.programs[0].peer.tick().since(tick) < 15), "SEED={seed}: {report:?}");
        assert!(report.missed >= report.repeated && report.earliness.is_some(), "SEED={seed}: {report:?}");
        assert!(report.missed.abs_diff(guest.missed_inputs()) < 10, "SEED={seed}: {report:?}, told {}", guest.missed_inputs());
        assert_eq!(report.useless, 0, "SEED={seed}");
        stage.finish();
    }
}

#[test]
fn a_clean_link_misses_next_to_nothing_at_any_frame_rate() {
    for (host, guest) in [(60, 60), (60, 20), (60, 144), (20, 60), (144, 60), (20, 20), (144, 144), (144, 20)] {
        for seed in common::seeds(1) {
            let clear = Conditions { jitter: Duration::from_millis(6), ..weather(40, 0.0) };
            let mut stage = Stage::new(seed, &[host, guest], clear, &Config::default());
            stage.run(Duration::from_secs(15));
            stage.take_made(1);
            stage.run(Duration::from_secs(60));
            let made = stage.take_made(1);
            let of = format!("SEED={seed}, {host} and {guest} frames a second");
            assert!(made.arrived > 3_500, "{of}: {} arrived", made.arrived);
            assert!(made.missed() * 1000 <= made.arrived, "{of}: {} of {} missed", made.missed(), made.arrived);
            assert!(stage.programs[1].peer.skipped_ticks() == 0, "{of}");
            stage.finish();
        }
    }
}

#[test]
fn without_latency_the_lead_is_a_tick_or_two() {
    for seed in common::seeds(2) {
        let mut stage = Stage::new(seed, &[60, 60], Conditions::default(), &Config::default());
        stage.run(Duration::from_secs(20));
        stage.take_made(1);
        stage.run(Duration::from_secs(30));
        let made = stage.take_made(1);
        assert_eq!(made.missed(), 0, "SEED={seed}");
        let lead = stage.programs[1].peer.lead().unwrap();
        assert!((16..45).contains(&lead.as_millis()), "SEED={seed}: {lead:?}");
        stage.finish();
    }
}

#[test]
fn a_guest_that_stands_still_is_repeated_and_then_absent_and_comes_back() {
    for (seconds, seed) in [(1, 1), (3, 2), (60, 3)] {
        let config = Config { time_out: Duration::from_secs(90), ..Config::default() };
        let mut stage =
            Stage::new(seed, &[60, 60], Conditions { jitter: Duration::from_millis(5), ..weather(50, 0.01) }, &config);
        stage.run(Duration::from_secs(15));
        stage.take_made(1);
        let lead = stage.programs[1].peer.lead().unwrap();
        stage.stall(1, Duration::from_secs(seconds));
        stage.run(Duration::from_secs(seconds));
        let made = stage.take_made(1);
        // what was on its way when it stopped still comes in time
        assert_eq!(made.repeated, 15, "SEED={seed}: as long as the limit says");
        assert!(made.absent >= seconds * 60 - 15 - 15, "SEED={seed}: {} absent", made.absent);
        // a second until its clock is right again and its ticks have arrived
        stage.run(Duration::from_secs(2));
        stage.take_made(1);
        stage.run(Duration::from_secs(5));
        let made = stage.take_made(1);
        assert!(made.missed() <= 3, "SEED={seed}: {} missed after it was back", made.missed());
        let peer = &stage.programs[1].peer;
        assert!(peer.skipped_ticks() >= seconds * 60 - 20, "SEED={seed}: the stall is skipped, not made good");
        let after = peer.lead().unwrap();
        assert!(
            after < lead + Duration::from_millis(70),
            "SEED={seed}: standing still is not the way's fault: {lead:?}, {after:?}"
        );
        stage.finish();
    }
}

#[test]
fn a_host_that_stands_still_blames_nobody() {
    for seed in common::seeds(2) {
        let mut stage = Stage::new(seed, &[60, 60, 60], weather(50, 0.01), &Config::default());
        stage.run(Duration::from_secs(15));
        let lead = stage.programs[1].peer.lead().unwrap();
        stage.stall(0, Duration::from_secs(3));
        stage.run(Duration::from_secs(4));
        for guest in [1, 2] {
            stage.take_made(guest);
        }
        stage.run(Duration::from_secs(10));
        for guest in [1, 2] {
            let made = stage.take_made(guest);
            assert!(made.missed() <= 6, "SEED={seed} guest {guest}: {} missed", made.missed());
        }
        let after = stage.programs[1].peer.lead().unwrap();
        assert!(after < lead + Duration::from_millis(60), "SEED={seed}: {lead:?}, {after:?}");
        stage.finish();
    }
}

#[test]
fn an_outage_is_survived_and_no_press_is_lost_over_it() {
    for seed in common::seeds(3) {
        let mut stage = Stage::new(seed, &[60, 60, 60], foul(), &Config::default());
        stage.run(Duration::from_secs(12));
        let link = stage.network.links()[0];
        for outage in [80, 200, 1500] {
            stage.network.edit(link, Direction::Up, |e| e.partition(stage.now, true));
            stage.run(Duration::from_millis(outage));
            stage.network.edit(link, Direction::Up, |e| e.partition(stage.now, false));
            stage.run(Duration::from_secs(8));
        }
        let lead = stage.programs[1].peer.lead().unwrap();
        assert!(lead < Duration::from_millis(400), "SEED={seed}: holes that repeats cover are not worth a lead of {lead:?}");
        let stick = stage.made[1].absent;
        assert!(stick > 30, "SEED={seed}: {stick} ticks of a second and a half were absent");
        stage.finish();
    }
}

#[test]
fn a_body_is_steered_through_the_host_and_seen() {
    let mut stage = Stage::new(5, &[60, 60], weather(60, 0.02), &Config::default());
    stage.run(Duration::from_secs(2));
    let guest = stage.programs[1].peer.local();
    let host = &mut stage.programs[0];
    let body = host.peer.spawn(&mut host.world, Body, (Place { x: 0.0 },)).unwrap();
    let net = host.peer.name_of(&host.world, body).unwrap();
    let mut sum = 0.0;
    for frame in 0..600u32 {
        let now = stage.now + Duration::from_micros(16_700) * frame;
        let right = if frame < 400 { 1.0 } else { 0.0 };
        let [host, own] = &mut stage.programs[..] else { unreachable!() };
        own.peer.set_input(&Stick { x: right, ..Stick::default() }).unwrap();
        own.run(now, |_, _| {});
        host.run(now, |world, step| {
            let input: Input<Stick> = step.input(guest).unwrap();
            for place in step.query::<&mut Place>(world).iter() {
                place.x += input.value.x;
                sum += input.value.x;
            }
        });
    }
    let own = &stage.programs[1];
    let seen = own.world.get::<&Place>(own.peer.entity_of(net).unwrap()).unwrap().x;
    assert!(sum > 350.0 && seen == sum, "steered by {sum}, seen at {seen}");
}

/// What the host knows of an owner's samples: tick by tick, where it was.
fn samples(inputs: bool, latency: u64) -> (Vec<(Duration, f32)>, Option<Duration>) {
    let network = Network::new(9);
    let config = Config { session: Some(9), ..Config::default() };
    let clear = weather(latency, 0.0);
    let mut host = Peer::host(schema(inputs), network.host(), config.clone()).unwrap();
    let mut owner = Peer::join(schema(inputs), network.join(clear, clear), config.clone()).unwrap();
    let mut other = Peer::join(schema(inputs), network.join(clear, clear), config).unwrap();
    let mut worlds = [World::new(), World::new(), World::new()];
    let mut runner: Option<Entity> = None;
    let mut drawn = Vec::new();
    for frame in 0..1500u64 {
        let now = Duration::from_micros(16_667) * frame as u32;
        for (i, peer) in [&mut host, &mut owner, &mut other].into_iter().enumerate() {
            let world = &mut worlds[i];
            peer.receive(now, world).unwrap();
            if i == 1 && frame > 120 && runner.is_none() {
                runner = peer.spawn(world, Runner, (Place { x: 0.0 },)).ok();
            }
            // where it is depends on the moment alone, so what others draw tells of which moment they take it to be
            while let Some(step) = peer.next_step(world) {
                step.query::<&mut Place>(world).iter().for_each(|place| place.x = now.as_secs_f32() * 100.0);
            }
            peer.send(now, world).unwrap();
        }
        if frame > 900 {
            let at = now + Duration::from_micros(3_000);
            let session = host.session_time().unwrap() + Duration::from_micros(3_000);
            let moment = session - other.interpolation_delay();
            for (_, place) in other.present::<Place>(&worlds[2], at).unwrap() {
                drawn.push((moment, place.x));
            }
        }
    }
    (drawn, owner.lead())
}

#[test]
fn what_a_guest_moves_itself_is_drawn_at_the_moment_it_was_there() {
    for latency in [0, 30, 120] {
        let (without, none) = samples(false, latency);
        let (with, lead) = samples(true, latency);
        assert!(none.is_none() && lead.is_some_and(|lead| lead >= Duration::from_millis(latency)));
        assert!(without.len() > 500 && with.len() == without.len());
        // the session began with the host's first frame, at the programs' time zero
        let error = |of: &[(Duration, f32)]| {
            let errors = of.iter().map(|(moment, x)| x / 100.0 - moment.as_secs_f32());
            let (least, most) = errors.fold((f32::MAX, f32::MIN), |(a, b), e| (a.min(e), b.max(e)));
            (least, most)
        };
        let (least, most) = error(&without);
        assert!(least > -0.02 && most < 0.035, "{latency} ms, without inputs: {least} to {most} s");
        let (least, most) = error(&with);
        assert!(least > -0.02 && most < 0.045, "{latency} ms, with inputs: {least} to {most} s off");
    }
}

#[test]
fn alone_and_at_the_host_the_own_input_is_folded_in() {
    let mut program = Program {
        peer: Peer::alone(schema(true), Config::default()).unwrap(),
        world: World::new(),
        frame: Duration::ZERO,
        next: Duration::ZERO,
    };
    let mut stick = Stick::default();
    let mut fired = 0;
    for frame in 0..100u32 {
        stick.jump.press();
        stick.x = 0.333;
        program.peer.set_input(&stick).unwrap();
        program.run(Duration::from_millis(40) * frame, |_, step| {
            let input: Input<Stick> = step.input(PeerId::HOST).unwrap();
            assert_eq!((input.source, input.value.x), (Source::Own, 0.33), "as it would travel");
            fired += u32::from(input.pressed(|stick| stick.jump));
        });
    }
    assert_eq!(fired, 100);
    let wrong = program.peer.set_input(&Stick { x: 2.0, ..stick });
    assert!(matches!(wrong, Err(tidelock::UsageError::Input(_))), "{wrong:?}");
    assert!(program.peer.set_input(&Place { x: 0.0 }).is_err());
    assert!(program.peer.lead().is_none() && program.peer.input_report(PeerId::HOST).is_none());
}

#[test]
fn the_schema_tells_builds_apart_by_their_input() {
    #[derive(Clone, Default, Replicate)]
    struct Other {
        x: u8,
    }
    #[derive(Clone, Default, Replicate)]
    struct Points {
        at: Option<Entity>,
    }
    let with = schema(true);
    let other = Schema::builder("inputs").component::<Place>("place", |c| c.interpolate());
    let other = other.kind::<Body>("body", Host::default()).kind::<Runner>("runner", Owner::default()).input::<Other>("stick");
    let digests = [schema(false).digest(), with.digest(), other.build().unwrap().digest()];
    assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
    assert!(with.entries().iter().any(|e| e.name == "input stick"));
    assert!(with.explain().contains("input `stick`"), "{}", with.explain());
    let two = Schema::builder("two").input::<Other>("a").input::<Stick>("b").build();
    assert!(two.unwrap_err().to_string().contains("2 inputs are too many"));
    let names = Schema::builder("names").input::<Points>("points").build();
    assert!(names.unwrap_err().to_string().contains("names an entity"));
}

/// Everything that holds without inputs holds with them: owners, interpolation, existence, in foul weather, under the oracle.
#[test]
fn the_oracle_holds_for_peers_whose_ticks_run_ahead() {
    for seed in common::seeds(6) {
        let schema = common::schema_with(|schema| schema.input::<Stick>("stick"));
        let (mut table, _network) = common::table_of(seed, &schema, 2, foul(), &common::config());
        let mut rng = common::Rng::new(seed);
        for _ in 0..400 {
            table.run(|seat, world, step| {
                let _ = step.peer().set_input(&Stick { x: rng.below(100) as f32 * 0.01, ..Stick::default() });
                common::churn(seat, world, step, &mut rng);
            });
        }
        assert!(table.seat(1).peer.lead().is_some_and(|lead| lead > Duration::from_millis(90)), "SEED={seed}");
        common::assert_settles(&mut table, 20);
        common::assert_clean(&mut table);
    }
}

#[test]
fn hostile_inputs_cost_their_sender_only() {
    for (bytes, ends) in [
        // a packet that ends early, and one of a tick before the first
        (vec![0x13, 1], true),
        (vec![0x13, 0, 0xe0, 0x07, 0, 0, 0, 0, 0, 0], true),
        // a confirmation of frames, of which there are none, and one that says nothing
        (vec![0x0b, 0, 0], true),
        (vec![0x03], true),
        // far ahead of the session: useless, and no more
        (vec![0xf3, 0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0], false),
    ] {
        let mut stage = Stage::new(4, &[60, 60, 60], weather(20, 0.0), &Config::default());
        stage.run(Duration::from_secs(2));
        let at = stage.now;
        stage.forged.lock().unwrap().extend(vec![bytes.clone(); limits::MALFORMED as usize]);
        let (mut left, mut absent) = (Vec::new(), 0);
        for frame in 1..120u32 {
            let now = at + Duration::from_micros(16_667) * frame;
            for (i, program) in stage.programs.iter_mut().enumerate() {
                program.run(now, |_, step| {
                    if i == 0 && frame > 60 {
                        absent += u32::from(step.input::<Stick>(PeerId(2)).unwrap().source == Source::Absent);
                    }
                });
            }
            while let Some(news) = stage.programs[0].peer.poll_news() {
                left.extend(if let News::Left { peer, .. } = news { Some(peer) } else { None });
            }
        }
        let sender = stage.programs[1].peer.ended().is_some();
        assert_eq!(sender, ends, "{bytes:?}: {left:?}");
        assert_eq!(left.len(), usize::from(ends));
        assert_eq!(absent, 0, "somebody else paid for it");
        assert!(stage.programs[2].peer.is_in_session());
    }
}

#[test]
fn without_an_input_in_the_schema_such_packets_are_malformed_and_nothing_is_sent() {
    let network = Network::new(3);
    let config = Config { session: Some(3), ..Config::default() };
    let mut host = Peer::host(schema(false), network.host(), config.clone()).unwrap();
    let forged = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let transport = Forger { inner: network.join(weather(10, 0.0), weather(10, 0.0)), forged: forged.clone() };
    let mut guest = Peer::join(schema(false), transport, config).unwrap();
    let (mut a, mut b) = (World::new(), World::new());
    for frame in 0..200u32 {
        let now = Duration::from_micros(16_667) * frame;
        for (peer, world) in [(&mut host, &mut a), (&mut guest, &mut b)] {
            peer.receive(now, world).unwrap();
            while peer.next_step(world).is_some() {}
            peer.send(now, world).unwrap();
        }
        if frame == 60 {
            assert_eq!(host.stats(PeerId(1)).unwrap().link.malformed, 0);
            forged.lock().unwrap().push(vec![3 | 60 << 2, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
    assert_eq!(host.stats(PeerId(1)).unwrap().link.malformed, 1);
    assert!(guest.lead().is_none() && guest.tick().since(host.tick()) <= 1, "its ticks do not run ahead");
}

#[test]
fn inputs_share_a_thin_line_with_what_the_guest_owns() {
    let thin = Config { bandwidth: 48_000, ..Config::default() };
    let mut stage = Stage::new(6, &[60, 60], weather(40, 0.01), &thin);
    stage.run(Duration::from_secs(3));
    let own = &mut stage.programs[1];
    let runners: Vec<Entity> = (0..60).map(|_| own.peer.spawn(&mut own.world, Runner, (Place { x: 0.0 },)).unwrap()).collect();
    let net = own.peer.name_of(&own.world, runners[59]).unwrap();
    let before = stage.programs[0].peer.stats(PeerId(1)).unwrap().link.bytes_in;
    stage.take_made(1);
    for step in 0..40u32 {
        for (i, runner) in runners.iter().enumerate() {
            stage.programs[1].world.get::<&mut Place>(*runner).unwrap().x = (step * 61 + i as u32 * 7) as f32;
        }
        stage.run(Duration::from_millis(250));
    }
    let made = stage.take_made(1);
    let host = &stage.programs[0];
    let bytes = host.peer.stats(PeerId(1)).unwrap().link.bytes_in - before;
    assert!(bytes <= 10 * 48_000 / 8, "{bytes} bytes in ten seconds");
    assert!(made.missed() * 4 < made.arrived, "{} missed, {} arrived", made.missed(), made.arrived);
    let seen = host.world.get::<&Place>(host.peer.entity_of(net).unwrap()).unwrap().x;
    assert!(seen > 1500.0, "state does not starve: {seen}");
    stage.finish();
}
