//! From a running session to a [`Snapshot`]: what is counted becomes rates, worlds become maps.

use super::keys::Wishes;
use super::snapshot::{Dot, Line, Map, Snapshot, Sort, Stage};
use crate::game::{Ball, Crate, Drone, Paddle, Player, Pose, Relic, Spot, Unit};
use crate::roles::{Guest, Host, Phase};
use hecs::{Entity, World};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tidelock::{PeerId, Traffic, UsageError};

/// Rates are taken so often.
const EVERY: Duration = Duration::from_millis(500);
/// So many are kept: a minute's.
const KEPT: usize = 120;
/// Rates are means over so many: a second's.
const MEAN: usize = 2;
/// Remarks that are kept.
const REMARKS: usize = 32;

/// What is counted of one guest, as it was at some moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    at: Duration,
    down: u64,
    up: u64,
    /// Packets, both ways.
    sent: u64,
    lost: u64,
    corrections: u64,
    reruns: u64,
}

impl Counts {
    fn of(host: &Host, guest: &Guest, at: Duration) -> Self {
        let here = guest.link.stats.transport;
        let there = host.links.get(&guest.peer.local()).map(|seen| seen.stats.transport).unwrap_or_default();
        Self {
            at,
            down: here.bytes_in,
            up: here.bytes_out,
            sent: here.packets_out + there.packets_out,
            lost: here.packets_lost + there.packets_lost,
            corrections: guest.peer.correction_count() + guest.view.corrections,
            reruns: guest.trail.reruns,
        }
    }
}

/// The recent past of one guest.
#[derive(Debug, Default)]
struct Past {
    counts: VecDeque<Counts>,
    trips: VecDeque<f64>,
    downs: VecDeque<f64>,
    oldest: Duration,
}

impl Past {
    fn note(&mut self, guest: &Guest, counts: Counts) {
        self.counts.push_back(counts);
        if self.counts.len() > MEAN + 1 {
            self.counts.pop_front();
        }
        keep(&mut self.trips, guest.link.stats.rtt.as_secs_f64() * 1e3);
        let down = self.per_second(|counts| counts.down) * 8.0 / 1e3;
        keep(&mut self.downs, down);
        self.oldest = guest.view.oldest_now;
    }

    /// How much more there was at the end than at the beginning of the last second.
    fn more(&self, of: impl Fn(&Counts) -> u64) -> f64 {
        match (self.counts.front(), self.counts.back()) {
            (Some(first), Some(last)) => of(last).saturating_sub(of(first)) as f64,
            _ => 0.0,
        }
    }

    fn per_second(&self, of: impl Fn(&Counts) -> u64) -> f64 {
        let seconds = self.more(|counts| counts.at.as_micros() as u64) / 1e6;
        if seconds > 0.0 { self.more(of) / seconds } else { 0.0 }
    }

    fn line(&self, guest: &Guest, name: String) -> Line {
        let stats = &guest.link.stats;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let sent = self.more(|counts| counts.sent);
        Line {
            name,
            rtt_ms: ms(stats.rtt),
            jitter_ms: ms(stats.jitter),
            loss_pct: if sent > 0.0 { self.more(|counts| counts.lost) * 100.0 / sent } else { 0.0 },
            down_kbps: self.per_second(|counts| counts.down) * 8.0 / 1e3,
            up_kbps: self.per_second(|counts| counts.up) * 8.0 / 1e3,
            buffer_ms: ms(guest.delay),
            oldest_ms: ms(self.oldest),
            corrections: self.per_second(|counts| counts.corrections),
            reruns: self.per_second(|counts| counts.reruns),
            trips: self.trips.iter().copied().collect(),
            downs: self.downs.iter().copied().collect(),
        }
    }
}

fn keep(values: &mut VecDeque<f64>, value: f64) {
    values.push_back(value);
    if values.len() > KEPT {
        values.pop_front();
    }
}

/// Bits by guest and by what they were for, as they were at some moment.
type Bits = BTreeMap<(PeerId, String), u64>;

/// What a view keeps of the session between two pictures.
#[derive(Debug, Default)]
pub(crate) struct Looker {
    looked: Option<Duration>,
    pasts: BTreeMap<String, Past>,
    bits: VecDeque<(Duration, Bits)>,
    remarks: VecDeque<String>,
}

impl Looker {
    /// Something to be told.
    pub(crate) fn remark(&mut self, now: Duration, text: &str) {
        self.remarks.push_back(format!("{:>3} s  {text}", now.as_secs()));
        if self.remarks.len() > REMARKS {
            self.remarks.pop_front();
        }
    }

    /// Takes rates, if it is time. Once a frame.
    pub(crate) fn look(&mut self, host: &Host, guests: &mut [Guest], now: Duration) {
        if self.looked.is_some_and(|at| now < at + EVERY) {
            return;
        }
        self.looked = Some(now);
        self.pasts.retain(|name, _| guests.iter().any(|guest| guest.name == *name));
        for guest in guests.iter_mut() {
            let counts = Counts::of(host, guest, now);
            self.pasts.entry(guest.name.clone()).or_default().note(guest, counts);
            guest.view.oldest_now = Duration::ZERO;
        }
        self.bits.push_back((now, bits(host, guests)));
        if self.bits.len() > MEAN + 1 {
            self.bits.pop_front();
        }
    }

    /// The picture of this moment.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn snapshot(&self, host: &Host, guests: &[Guest], wishes: &Wishes, now: Duration) -> Result<Snapshot, UsageError> {
        let mut maps = vec![Map { name: "host".into(), entities: host.entities(), dots: dots_of_host(&host.world) }];
        let mut lines = Vec::new();
        for guest in guests {
            let name = guest.name.clone();
            let dots = dots_of_guest(guest, now)?;
            maps.push(Map { name: name.clone(), entities: guest.peer.entity_count(), dots });
            lines.extend(self.pasts.get(&name).map(|past| past.line(guest, name.clone())));
        }
        let (stage, time, left) = match host.phase {
            Phase::Gathering => (Stage::Gathering, now, None),
            Phase::Playing { since } => (Stage::Playing, now - since, host.left(now)),
            Phase::Settling { since, .. } => (Stage::Comparing, now - since, None),
            Phase::Over => (Stage::Comparing, Duration::ZERO, None),
        };
        Ok(Snapshot {
            stage,
            time,
            left,
            conditions: wishes.conditions,
            maps,
            lines,
            traffic: self.traffic(),
            remarks: self.remarks.iter().cloned().collect(),
            skipped: wishes.skipped,
            help: wishes.help,
        })
    }

    fn traffic(&self) -> Vec<(String, f64)> {
        let (Some((start, before)), Some((end, after))) = (self.bits.front(), self.bits.back()) else { return Vec::new() };
        rates(before, after, (*end - *start).as_secs_f64())
    }
}

/// What was sent to the guests.
fn bits(host: &Host, guests: &[Guest]) -> Bits {
    let mut bits = Bits::new();
    for peer in guests.iter().map(|guest| guest.peer.local()).filter(|peer| *peer != PeerId::NOBODY) {
        let all = host.links.get(&peer).map_or(0, |seen| seen.stats.transport.bytes_out * 8);
        if let Some(traffic) = host.peer.traffic(peer) {
            add(&mut bits, peer, traffic, all);
        }
    }
    bits
}

/// Adds what was sent to one guest, of which `all` is everything. A component that has a form for observers and one for who predicts
/// it comes twice under one name.
fn add(bits: &mut Bits, peer: PeerId, traffic: Traffic, all: u64) {
    let known = traffic.heads + traffic.components.iter().map(|(_, count)| count).sum::<u64>();
    let others = [("which rows".to_owned(), traffic.heads), ("rest".to_owned(), all.saturating_sub(known))];
    for (name, count) in traffic.components.into_iter().chain(others) {
        *bits.entry((peer, name)).or_default() += count;
    }
}

/// Kilobits a second between two moments, the most first. Who came meanwhile counts from zero, who left does not count.
fn rates(before: &Bits, after: &Bits, seconds: f64) -> Vec<(String, f64)> {
    let mut sums = BTreeMap::<&str, u64>::new();
    for (of, bits) in after {
        *sums.entry(&of.1).or_default() += bits.saturating_sub(before.get(of).copied().unwrap_or(0));
    }
    let rate = |(name, bits): (&str, u64)| (name.to_owned(), bits as f64 / 1e3 / seconds.max(1e-3));
    let mut rates: Vec<(String, f64)> = sums.into_iter().map(rate).collect();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    rates
}

/// What is at a place of its own kind.
fn sort(world: &World, entity: Entity) -> Option<Sort> {
    let is = |sort, yes: bool| yes.then_some(sort);
    is(Sort::Drone, world.satisfies::<&Drone>(entity))
        .or_else(|| is(Sort::Crate, world.satisfies::<&Crate>(entity)))
        .or_else(|| is(Sort::Player, world.satisfies::<&Player>(entity)))
        .or_else(|| is(Sort::Relic, world.satisfies::<&Relic>(entity)))
        .or_else(|| is(Sort::Unit, world.satisfies::<&Unit>(entity)))
        .or_else(|| is(Sort::Ball, world.satisfies::<&Ball>(entity) || world.satisfies::<&Paddle>(entity)))
}

fn dots_of_host(world: &World) -> Vec<Dot> {
    let mut dots = computed(world);
    for (entity, pose) in world.query::<(Entity, &Pose)>().iter() {
        dots.extend(sort(world, entity).map(|sort| Dot { sort, x: pose.x, y: pose.y }));
    }
    dots
}

/// As it draws it: interpolated, predicted, with corrections that fade.
fn dots_of_guest(guest: &Guest, now: Duration) -> Result<Vec<Dot>, UsageError> {
    let mut dots = computed(&guest.world);
    for (entity, pose) in guest.peer.present::<Pose>(&guest.world, now)? {
        dots.extend(sort(&guest.world, entity).map(|sort| Dot { sort, x: pose.x, y: pose.y }));
    }
    Ok(dots)
}

/// What every peer computes for itself.
fn computed(world: &World) -> Vec<Dot> {
    let spots = world.query::<(Entity, &Spot)>().iter().map(|(entity, spot)| (entity, *spot)).collect::<Vec<_>>();
    let dot = |(entity, spot): (Entity, Spot)| Some(Dot { sort: sort(world, entity)?, x: spot.x, y: spot.y });
    spots.into_iter().filter_map(dot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(pose: [u64; 2], heads: u64) -> Traffic {
        let components = [("presence", 10), ("pose", pose[0]), ("pose", pose[1])];
        let components = components.map(|(name, bits)| (name.to_owned(), bits)).to_vec();
        Traffic { components, kinds: Vec::new(), heads }
    }

    #[test]
    fn traffic_is_summed_by_name_over_those_who_are_there() {
        let (one, two, gone) = (PeerId(1), PeerId(2), PeerId(3));
        let (mut before, mut after) = (Bits::new(), Bits::new());
        add(&mut before, one, traffic([1000, 100], 50), 2000);
        add(&mut before, gone, traffic([900_000, 0], 50), 1_000_000);
        add(&mut after, one, traffic([3000, 600], 60), 6000);
        add(&mut after, two, traffic([4000, 0], 0), 4010);
        let of = |name: &str, rate: f64| (name.to_owned(), rate);
        // in two seconds: 2000 + 500 + 4000 of pose; 10 of heads; 6000 - 3670 beside the 840 from before
        assert_eq!(
            rates(&before, &after, 2.0),
            [of("pose", 3.25), of("rest", 0.745), of("presence", 0.005), of("which rows", 0.005)]
        );
        assert_eq!(rates(&Bits::new(), &Bits::new(), 0.0), []);
    }
}
