use super::*;
use crate::clock::Sample;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

const TICK: Duration = Duration::from_nanos(1_000_000_000 / 60);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// One way, one link, two programs with their own frames; inputs repeated until confirmed, as the real ones are.
struct Link {
    chance: Pcg64Mcg,
    latency: Duration,
    jitter: Duration,
    /// Of 1000.
    loss: u64,
    /// From one frame to the next.
    guest_frame: Duration,
    host_frame: Duration,
}

impl Link {
    fn new(seed: u64, latency: u64, jitter: u64, loss: u64) -> Self {
        let (chance, frame) = (Pcg64Mcg::seed_from_u64(seed), ms(16));
        Self { chance, latency: ms(latency), jitter: ms(jitter), loss, guest_frame: frame, host_frame: frame }
    }

    fn way(&mut self) -> Option<Duration> {
        let jitter = self.jitter * (self.chance.next_u64() % 1000) as u32 / 1000;
        (self.chance.next_u64() % 1000 >= self.loss).then_some(self.latency + jitter)
    }
}

#[derive(Default)]
struct Outcome {
    ticks: u64,
    missed: u64,
    /// Milliseconds.
    leads: Vec<i64>,
}

fn tick_of(time: Duration) -> u64 {
    (time.as_nanos() * 60 / 1_000_000_000) as u64
}

/// How far the session is when the guest's own time begins.
const AHEAD: Duration = Duration::from_secs(100);

/// A guest and its host, and what is on its way between them.
struct Both {
    clock: SessionClock,
    lead: Lead,
    /// The guest's last tick, and the host's.
    run: u64,
    ran: u64,
    confirmed: u64,
    newest: u64,
    /// By tick: how far ahead of the session the guest ran it.
    aheads: BTreeMap<u64, i64>,
    /// When it arrives, first and last tick.
    up: Vec<(Duration, u64, u64)>,
    /// When it arrives, newest tick, least earliness.
    down: Vec<(Duration, u64, i64)>,
    least: Option<i64>,
    told: Duration,
    /// What is counted.
    from: Duration,
    outcome: Outcome,
}

impl Both {
    fn new(rtt: Duration, from: Duration) -> Self {
        let mut clock = SessionClock::start(AHEAD, Duration::ZERO, Duration::ZERO);
        clock.observe(Sample { sent: Duration::ZERO, host: AHEAD + rtt / 2, received: rtt, held: Duration::ZERO });
        let lead = Lead::start(rtt, &clock, TICK);
        let (run, ran) = (tick_of(lead.time(rtt)), tick_of(AHEAD + rtt));
        Self {
            clock,
            lead,
            run,
            ran,
            confirmed: run,
            newest: run,
            aheads: BTreeMap::new(),
            up: Vec::new(),
            down: Vec::new(),
            least: None,
            told: Duration::ZERO,
            from,
            outcome: Outcome::default(),
        }
    }

    fn guest_frame(&mut self, now: Duration, link: &mut Link) {
        let Self { down, aheads, confirmed, lead, .. } = self;
        down.retain(|&(at, tick, early)| {
            if at <= now
                && let Some(ahead) = aheads.get(&tick)
            {
                *confirmed = tick.max(*confirmed);
                lead.note(now, *ahead, early);
            }
            at > now
        });
        if let Some(way) = link.way()
            && tick_of(now).is_multiple_of(12)
        {
            let back = link.latency;
            self.clock.observe(Sample { sent: now - way - back, host: AHEAD + now - back, received: now, held: Duration::ZERO });
        }
        let before = self.lead.time(now);
        self.lead.steer(now, &self.clock);
        assert_eq!(self.lead.time(now), before, "steering bends, it does not jump");
        let due = tick_of(self.lead.time(now));
        while self.run < due {
            self.run += 1;
            self.aheads.insert(self.run, self.lead.ahead(now, &self.clock));
        }
        if let Some(way) = link.way() {
            self.up.push((now + way, self.confirmed + 1, self.run));
        }
        if now > self.from {
            self.outcome.leads.push(self.lead.ahead(now, &self.clock) / 1_000_000);
        }
    }

    fn host_frame(&mut self, now: Duration, link: &mut Link) {
        let session = AHEAD + now;
        let Self { up, newest, least, ran, .. } = self;
        up.retain(|&(at, first, last)| {
            if at <= now {
                for tick in first.max(*newest + 1)..=last {
                    let deadline = session.min(TICK * (*ran + 1) as u32);
                    let early = (TICK * tick as u32).as_nanos() as i64 - deadline.as_nanos() as i64;
                    *least = Some(least.map_or(early, |l| l.min(early)));
                }
                *newest = last.max(*newest);
            }
            at > now
        });
        while self.ran < tick_of(session) {
            self.ran += 1;
            if now > self.from {
                self.outcome.ticks += 1;
                self.outcome.missed += u64::from(self.ran > self.newest);
            }
        }
        if now >= self.told + ms(50)
            && let Some(early) = self.least.take()
        {
            self.told = now;
            if let Some(way) = link.way() {
                self.down.push((now + way, self.newest, early));
            }
        }
    }
}

/// Runs both for `time`, in steps of a millisecond; counts from `from` on. `weather` changes the link as time goes on.
fn run(link: &mut Link, from: Duration, time: Duration, mut weather: impl FnMut(Duration, &mut Link)) -> Outcome {
    let rtt = link.latency * 2 + link.jitter;
    let mut both = Both::new(rtt, from);
    let (mut guest_at, mut host_at) = (rtt, rtt);
    let mut now = rtt;
    while now < time {
        now += ms(1);
        weather(now, link);
        if now >= guest_at {
            guest_at = now + link.guest_frame;
            both.guest_frame(now, link);
        }
        if now >= host_at {
            host_at = now + link.host_frame;
            both.host_frame(now, link);
        }
    }
    both.outcome
}

#[test]
fn a_jittered_link_without_loss_misses_next_to_nothing_and_settles() {
    for seed in 0..6 {
        for (latency, jitter) in [(0, 0), (20, 3), (100, 15), (200, 60)] {
            let mut link = Link::new(seed, latency, jitter, 0);
            let out = run(&mut link, Duration::from_secs(15), Duration::from_secs(75), |_, _| {});
            let (least, most) = (out.leads.iter().min().unwrap(), out.leads.iter().max().unwrap());
            assert!(out.missed * 1000 <= out.ticks, "seed {seed}, {latency} ms: {} of {} missed", out.missed, out.ticks);
            assert!(most - least <= 25, "seed {seed}, {latency} ms: swings between {least} and {most} ms");
            // the way, the frames of both, the margin, and what one asymmetric sample may mislead the clock by
            let bound = (latency + jitter * 2) as i64 + 2 * 17 + 10;
            assert!(*most <= bound && *least >= 15, "seed {seed}, {latency} ms: {least} to {most} ms");
        }
    }
}

#[test]
fn with_loss_misses_are_few_and_the_lead_bounded() {
    for seed in 0..4 {
        let mut link = Link::new(seed, 100, 15, 50);
        let out = run(&mut link, Duration::from_secs(15), Duration::from_secs(75), |_, _| {});
        assert!(out.missed * 200 <= out.ticks, "seed {seed}: {} of {} missed", out.missed, out.ticks);
        assert!(*out.leads.iter().max().unwrap() < 260, "seed {seed}: {:?}", out.leads.iter().max());
    }
}

#[test]
fn a_way_that_becomes_longer_is_followed_at_once_and_a_shorter_one_slowly() {
    let mut link = Link::new(1, 30, 5, 0);
    let mut at = Vec::new();
    let out = run(&mut link, Duration::ZERO, Duration::from_secs(60), |now, link| {
        link.latency = if (20..24).contains(&now.as_secs()) { ms(130) } else { ms(30) };
        at.push(now);
    });
    let at = |second: usize| out.leads[second * 1000 / 16];
    assert!(at(18) < 85, "{} ms before", at(18));
    assert!(at(23) >= 130 - 5, "5 % of two seconds make up for 100 ms: {} ms", at(23));
    assert!(at(30) >= 125, "the worst of ten seconds decides: {} ms", at(30));
    assert!(at(55) < 90, "and then it is lowered, 20 ms a second: {} ms", at(55));
    assert!(out.leads.windows(2).all(|w| (w[1] - w[0]).abs() <= 4), "no jumps");
}

#[test]
fn frames_of_any_length_are_part_of_the_way() {
    for (guest, host) in [(50, 7), (7, 50), (50, 50), (7, 7), (16, 16)] {
        let mut link = Link::new(3, 40, 5, 0);
        (link.guest_frame, link.host_frame) = (ms(guest), ms(host));
        let out = run(&mut link, Duration::from_secs(15), Duration::from_secs(60), |_, _| {});
        assert!(out.missed * 1000 <= out.ticks, "{guest} and {host} ms: {} of {} missed", out.missed, out.ticks);
    }
}

#[test]
fn it_keeps_its_bounds_whatever_it_is_told() {
    let clock = SessionClock::start(ms(5000), Duration::ZERO, Duration::ZERO);
    for told in [i64::MIN, -1_000_000_000_000, 0, 1_000_000_000_000, i64::MAX] {
        let mut lead = Lead::start(Duration::ZERO, &clock, TICK);
        let mut before = lead.time(Duration::ZERO);
        for frame in 1..20_000u64 {
            let now = ms(frame * 10);
            lead.note(now, 0, told);
            lead.steer(now, &clock);
            let time = lead.time(now);
            let speed = (time - before).as_micros();
            assert!((9_499..=10_501).contains(&speed), "{speed} µs in 10 ms");
            let ahead = lead.ahead(now, &clock);
            assert!((16_000_000..=1_000_100_000).contains(&ahead), "{ahead} ns ahead");
            before = time;
        }
        assert!(lead.ways.len() <= WAYS);
    }
}

#[test]
fn a_jump_of_the_sessions_clock_is_followed_and_never_back() {
    let mut clock = SessionClock::start(ms(100_000), Duration::ZERO, Duration::ZERO);
    let mut lead = Lead::start(Duration::ZERO, &clock, TICK);
    let mut before = lead.time(Duration::ZERO);
    for (at, host) in [(1_000, 101_000), (20_000, 90_000), (40_000, 160_000), (60_000, 180_100)] {
        clock.observe(Sample { sent: ms(at), host: ms(host), received: ms(at), held: Duration::ZERO });
        for frame in 0..600 {
            let now = ms(at + frame * 16);
            lead.steer(now, &clock);
            assert!(lead.time(now) >= before, "at {now:?}");
            before = lead.time(now);
        }
    }
    let end = lead.time(ms(72_000)).as_millis();
    assert!((192_116..192_150).contains(&end), "{end}");
}
