//! Packets that many peers are sent: as they are, or, for who is owed something else of some rows, with these left out.

use super::cache::Mark;
use super::{Assembler, Body};
use crate::block::{Context, END, Entry, Masks, bits};
use crate::forecast::Forecast;
use crate::receipts::Tally;
use crate::subscriber::{Carried, Freight, Subscriber};

/// The length of [`END`].
const END_BITS: usize = 2;

impl Assembler<'_> {
    /// Finds out whether others are told the same, or nearly.
    pub(super) fn join_cohort(&mut self, subscriber: &Subscriber) {
        (self.scratch.cohort, self.scratch.spliced) = (None, false);
        if self.alone || !self.packing.packets || !self.scratch.confirmed {
            return;
        }
        let (of, older) = ((self.base, self.scratch.components), self.scratch.older);
        if subscriber.is_even(self.publisher, older) {
            self.scratch.cohort = self.sees_velocities(subscriber).then(|| (self.cache.cohort(of), 0));
        } else if let Some(cohort) = self.cache.find_cohort(of)
            && subscriber.odd_rows(self.publisher, older, &mut self.scratch.odd, &mut self.scratch.touched)
            && self.sees_velocities(subscriber)
        {
            self.scratch.left.clear();
            (self.scratch.cohort, self.scratch.spliced) = (Some((cohort, 0)), true);
        }
    }

    /// Is the peer told the velocities that guesses of what is pending are made from?
    fn sees_velocities(&self, subscriber: &Subscriber) -> bool {
        let codings = &self.cache.sets[self.scratch.set].codings;
        bits(self.scratch.components).map(|c| c as usize).all(|c| {
            let velocity = self.schema.velocity(c).filter(|_| codings.components[c].forecast == Forecast::Velocity);
            velocity.is_none_or(|velocity| !subscriber.lacks(c, velocity.source, self.publisher))
        })
    }

    /// The packet that others were sent, if this peer is told the same and there is one that fits.
    pub(super) fn fill_alike(&mut self, subscriber: &mut Subscriber, limit: usize) -> Option<Body> {
        let (cohort, index) = self.scratch.cohort?;
        let packet = self.cache.cohorts[cohort].packet(index).filter(|packet| packet.at.1 < limit)?;
        self.scratch.cohort = Some((cohort, index + 1));
        subscriber.tally.fit(self.schema.columns(), self.schema.kinds.len());
        subscriber.tally.add(&packet.tally);
        subscriber.take_packet(&packet.carried, &packet.emptied, packet.all);
        Some(Body {
            carried: Freight::Shared(packet.carried.clone()),
            copy: Some(packet.at),
            values: packet.values,
            may_introduce: false,
            all: packet.all,
            whole: packet.all,
        })
    }

    /// Keeps a packet for the others who are told the same; `before`: the tally before it.
    pub(super) fn keep_alike(&mut self, body: &mut Body, before: &Tally, subscriber: &Subscriber) {
        let Some((cohort, index)) = self.scratch.cohort else { return };
        // who could not take a packet as it was goes on alone
        let kept = &self.cache.cohorts[cohort];
        let next = kept.packet(index).is_none() && (index == 0 || kept.packet(index - 1).is_some_and(|p| !p.all));
        self.scratch.cohort = next.then_some((cohort, index + 1));
        if !next || body.carried.is_empty() {
            return;
        }
        let (start, len) = (self.cache.arena.len(), self.scratch.body.len());
        self.cache.arena.append(&self.scratch.body, 0, len);
        let carried = self.lists.share(&body.carried);
        let packet = self.cache.cohorts[cohort].push();
        packet.carried = carried;
        (packet.at, packet.values, packet.all) = ((start, len), body.values, body.all);
        packet.emptied.clear();
        packet.emptied.extend(body.carried.iter().map(|x| x.block).filter(|block| subscriber.is_empty(*block)));
        packet.emptied.dedup();
        packet.tally.set_difference(before, &subscriber.tally);
        std::mem::swap(&mut packet.marks, &mut self.scratch.marks);
        self.lists.give(std::mem::replace(&mut body.carried, Freight::Shared(packet.carried.clone())));
    }

    /// Fills `scratch.body` with the next packet that others were sent, but for the rows that this peer is told otherwise; these are
    /// pending by themselves once the last has gone. `None`: there is no further one, or it does not fit.
    pub(super) fn splice(&mut self, subscriber: &mut Subscriber, limit: usize) -> Option<Body> {
        while let Some((cohort, index)) = self.scratch.cohort.filter(|_| subscriber.is_folded())
            && let Some(packet) = self.cache.cohorts[cohort].packet(index)
            && packet.at.1 < limit
        {
            let (at, all, mut values) = (packet.at, packet.all, packet.values);
            let mut tally = std::mem::take(&mut self.scratch.spliced_tally);
            tally.clone_from(&packet.tally);
            let left = self.scratch.left.len();
            let carried = self.copy_packet(subscriber, (cohort, index), &mut tally);
            self.scratch.spliced_tally = tally;
            if self.scratch.body.len() >= limit {
                // where rows are left out, heads get longer
                self.scratch.left.truncate(left);
                self.lists.give(carried);
                break;
            }
            self.scratch.cohort = Some((cohort, index + 1));
            if all {
                subscriber.end_fold(&self.scratch.left);
            }
            if carried.is_empty() {
                self.scratch.body.clear();
                continue;
            }
            subscriber.tally.fit(self.schema.columns(), self.schema.kinds.len());
            subscriber.tally.add(&self.scratch.spliced_tally);
            values -= self.scratch.left[left..].iter().map(|x| x.mask.count_ones() as usize).sum::<usize>();
            #[cfg(test)]
            {
                self.scratch.copies += u64::from(self.scratch.left.len() > left);
            }
            let all = all && !subscriber.is_pending();
            let copy = matches!(carried, Freight::Shared(_)).then_some(at);
            return Some(Body { carried, copy, values, may_introduce: false, all, whole: all });
        }
        self.scratch.body.clear();
        (self.scratch.cohort, self.scratch.spliced) = (None, false);
        None
    }

    /// Copies a packet to `scratch.body`, or leaves it where it is if there are no odd rows in it. `tally`: of the packet, and then of
    /// the copy.
    fn copy_packet(&mut self, subscriber: &Subscriber, (cohort, index): (usize, usize), tally: &mut Tally) -> Freight {
        let packet = self.cache.cohorts[cohort].packet_mut(index);
        let (at, carried, marks) = (packet.at, packet.carried.clone(), std::mem::take(&mut packet.marks));
        let copy = if marks.iter().any(|mark| self.is_touched(mark.block)) {
            let own = self.copy_entries(subscriber, at, &marks, &carried, tally);
            self.lists.keep(own)
        } else {
            Freight::Shared(carried)
        };
        self.cache.cohorts[cohort].packet_mut(index).marks = marks;
        copy
    }

    /// Copies a packet's entries but for the odd rows, which go to `scratch.left`; says what it carries then. `tally`: of the packet,
    /// and then of the copy.
    fn copy_entries(
        &mut self,
        subscriber: &Subscriber,
        at: (usize, usize),
        marks: &[Mark],
        carried: &[Carried],
        tally: &mut Tally,
    ) -> Vec<Carried> {
        let mut own = self.lists.draft();
        // bits of the packet up to here are copied, or left out
        let (mut done, mut context) = (0, Context::default());
        let (mut rest, mut marks) = (carried, marks);
        while let Some(mark) = marks.first() {
            let block = mark.block;
            let entries = marks.iter().take_while(|m| m.block == block).count();
            let (these, others) = rest.split_at(rest.iter().take_while(|x| x.block == block).count());
            let (mine, following) = marks.split_at(entries);
            let end = following.first().map_or(at.1 - END_BITS, |m| m.start);
            (rest, marks) = (others, following);
            if !self.is_touched(block) && context == mark.before {
                own.extend_from_slice(these);
                context = following.first().map_or(context, |m| m.before);
                continue;
            }
            self.scratch.body.append(&self.cache.arena, at.0 + done, mark.start - done);
            done = end;
            self.copy_block(subscriber, mine, these, &mut context, &mut own, tally);
        }
        self.scratch.body.append(&self.cache.arena, at.0 + done, at.1 - END_BITS - done);
        self.scratch.body.put(END, 2);
        let bits: u64 = tally.components.iter().sum();
        tally.heads = self.scratch.body.len() as u64 - bits;
        own
    }

    fn is_touched(&self, block: u32) -> bool {
        self.scratch.touched[block as usize / 64] >> (block % 64) & 1 != 0
    }

    /// Writes what a packet holds of a block anew, without the odd rows.
    fn copy_block(
        &mut self,
        subscriber: &Subscriber,
        marks: &[Mark],
        these: &[Carried],
        context: &mut Context,
        own: &mut Vec<Carried>,
        tally: &mut Tally,
    ) {
        let (block, kind) = (these[0].block, self.publisher.kind_of(these[0].block as usize));
        let rows = these.iter().fold(0, |rows, x| rows | x.mask);
        let masks: Masks = these.iter().map(|x| (x.component, x.mask)).collect();
        // a block of several entries, or of others' values, is left out as a whole
        let plain = marks.len() == 1 && self.publisher.remote_rows(block as usize) & rows == 0;
        let odd =
            if plain { self.scratch.odd[block as usize] | self.blind(subscriber, block as usize, &masks) } else { u64::MAX };
        for (x, bits) in these.iter().zip(marks.iter().flat_map(|m| &m.bits)) {
            tally.components[usize::from(x.component)] -= u64::from(*bits);
            tally.kinds[kind] -= u64::from(*bits);
        }
        self.scratch.left.extend(these.iter().map(|x| Carried { mask: x.mask & odd, ..*x }).filter(|x| x.mask != 0));
        let masks: Masks = masks.iter().map(|m| (m.0, m.1 & !odd)).filter(|m| m.1 != 0).collect();
        if masks.is_empty() {
            return;
        }
        let guessed = subscriber.is_exact(block as usize, self.base);
        let mut entry = Entry { block, sample_age: self.own_age(), guessed, masks, ..Entry::default() };
        self.put(self.tick, &mut entry, context);
        for (&(component, mask), &bits) in entry.masks.iter().zip(&self.scratch.bits) {
            tally.components[usize::from(component)] += u64::from(bits);
            tally.kinds[kind] += u64::from(bits);
            own.push(Carried { block, component, mask, since: self.tick });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::packing::Packing;
    use crate::policy::Host;
    use crate::testing::Table;
    use crate::{Config, Replicate, Schema};
    use hecs::Entity;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng as _, SeedableRng};
    use std::time::Duration;
    use tidelock_loopback::{Conditions, Network};

    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct Place(#[net(step = 0.01, range = -1000.0..=1000.0)] [f32; 2]);

    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct Speed(#[net(step = 0.01, range = -50.0..=50.0)] [f32; 2]);

    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct Health(u16);

    #[derive(Clone, Copy, Default)]
    struct Thing;

    const THINGS: usize = 700;

    /// Plays in foul weather; how many packets were others', without some rows.
    fn play(seed: u64, config: &Config, churn: bool) -> u64 {
        let schema = Schema::builder("splice").component::<Speed>("speed", |c| c).component::<Health>("health", |c| c);
        let schema = schema.component::<Place>("place", |c| c.velocity::<Speed>()).kind::<Thing>("thing", Host::default());
        let (schema, network) = (schema.build().unwrap(), Network::new(seed));
        let weather = Conditions { latency: Duration::from_millis(40), loss: 0.08, ..Conditions::default() };
        let mut table = Table::new(seed, &schema, config.clone(), network.host()).unwrap();
        (0..6).for_each(|_| _ = table.join(config.clone(), network.join(weather, weather)).unwrap());
        table.rest(100);
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut below = move |n: usize| (rng.next_u64() % n as u64) as usize;
        let host = table.seat(0);
        let spawn = |world: &mut hecs::World, x: f32, peer: &mut crate::Peer| {
            peer.spawn(world, Thing, (Place([x, 0.0]), Speed([3.0, -2.0]), Health(100))).unwrap()
        };
        let mut things: Vec<Entity> = (0..THINGS).map(|i| spawn(&mut host.world, i as f32, &mut host.peer)).collect();
        for round in 0..6 {
            for _ in 0..60 {
                let host = table.seat(0);
                for (i, thing) in things.iter().enumerate() {
                    // a third moves, others in each round
                    if i % 3 == round % 3 {
                        let mut place = host.world.get::<&mut Place>(*thing).unwrap();
                        place.0 = [(place.0[0] + 0.05) % 900.0, (place.0[1] - 0.03) % 900.0];
                    }
                }
                for _ in 0..THINGS / 50 {
                    host.world.get::<&mut Health>(things[below(THINGS)]).unwrap().0 += 1;
                }
                if churn && below(4) == 0 {
                    let i = below(THINGS);
                    host.peer.despawn(&mut host.world, things[i]).unwrap();
                    things[i] = spawn(&mut host.world, 1.0, &mut host.peer);
                }
                table.rest(1);
            }
            // what was told wrongly would stay so: nothing changes any more
            assert!(table.settle(Duration::from_secs(20)), "SEED={seed} round {round}: {:?}", table.all_equal());
        }
        table.seat(0).peer.scratch.copies
    }

    #[test]
    fn who_differs_in_some_rows_gets_the_others_packets_without_them_and_ends_equal() {
        let config = Config { bandwidth: 1 << 30, ..Config::default() };
        let without = Config { packing: Packing { packets: false, ..Packing::ALL }, ..config.clone() };
        for seed in 0..3 {
            // where entities come and go, presence goes along with what changes, and nobody is told as others are
            let churn = seed % 3 == 2;
            let copies = play(seed, &config, churn);
            assert!(copies > 100 || churn, "SEED={seed}: {copies} packets were copied without some rows");
        }
        assert_eq!(play(0, &without, false), 0);
    }

    #[test]
    fn who_has_little_room_ends_equal_too() {
        for seed in 10..12 {
            play(seed, &Config { bandwidth: 40_000, ..Config::default() }, false);
        }
    }
}
