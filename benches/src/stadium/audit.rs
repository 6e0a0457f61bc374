//! How old what guests see is: each position at a guest is looked up among those that the host has had.

use crate::stadium::walkers::Place;
use hecs::World;
use std::collections::HashMap;
use tidelock::{NetId, Networked};

/// Frames that are remembered.
const TRAIL: usize = 128;
/// How many of the nearest are looked at.
pub const NEAREST: usize = 32;
/// What is within this part of the distance of the last of the nearest must be there: the rest is the margin that keeps what
/// walks along a border from coming and going.
const SURE: f32 = 0.8;

/// Where everybody was in the host's world, frame by frame, and what they are called.
#[derive(Default)]
pub struct Trail {
    frames: Vec<Vec<Option<[f32; 2]>>>,
    names: HashMap<NetId, usize>,
}

impl Trail {
    /// Walker `i` has a name.
    pub fn name(&mut self, net: NetId, i: usize) {
        self.names.insert(net, i);
    }

    /// Notes where everybody is in the host's world in frame `n`; all frames are to be noted, in order.
    pub fn note(&mut self, n: u64, walkers: usize, world: &World) {
        self.frames.resize_with(TRAIL, Vec::new);
        let frame = &mut self.frames[n as usize % TRAIL];
        frame.clear();
        frame.resize(walkers, None);
        for (networked, place) in world.query::<(&Networked, &Place)>().iter() {
            if let Some(i) = self.names.get(&networked.id()) {
                frame[*i] = Some([place.x, place.y]);
            }
        }
    }

    fn at(&self, n: u64, i: usize) -> Option<[f32; 2]> {
        self.frames.get(n as usize % TRAIL)?.get(i).copied().flatten()
    }

    /// The latest frame up to `n` in which the walker was there, so many frames back; `None` if it is not remembered.
    fn age(&self, n: u64, i: usize, place: Place) -> Option<usize> {
        (0..TRAIL.min(n as usize + 1)).find(|back| self.at(n - *back as u64, i) == Some([place.x, place.y]))
    }
}

/// Ages that were found, and what was missing.
#[derive(Clone, Debug)]
pub struct Ages {
    /// By age in frames: how often. The last: older than what is remembered.
    counts: Vec<u64>,
    /// Of those that must be there: how often one was looked for, and not found.
    pub absent: (u64, u64),
    near: Vec<(f32, usize, Place)>,
    distances: Vec<f32>,
}

impl Default for Ages {
    fn default() -> Self {
        Self { counts: vec![0; TRAIL + 1], absent: (0, 0), near: Vec::new(), distances: Vec::new() }
    }
}

impl Ages {
    /// Looks at the nearest in a guest's world in frame `n`. `lag`: how many frames what the host sends is under way to it; `own`:
    /// the guest's own walker.
    pub fn look(&mut self, trail: &Trail, world: &World, n: u64, lag: u64, own: usize) {
        let Some(eye) = trail.at(n, own) else { return };
        self.near.clear();
        for (networked, place) in world.query::<(&Networked, &Place)>().iter() {
            if let Some(i) = trail.names.get(&networked.id()).filter(|i| **i != own) {
                self.near.push((square(eye, [place.x, place.y]), *i, *place));
            }
        }
        if self.near.len() > NEAREST {
            self.near.select_nth_unstable_by(NEAREST - 1, |a, b| a.0.total_cmp(&b.0));
        }
        for &(_, i, place) in self.near.iter().take(NEAREST) {
            let age = trail.age(n.saturating_sub(lag), i, place).unwrap_or(TRAIL);
            self.counts[age] += 1;
        }
    }

    /// Looks for those that must be there: well within the nearest in the host's world of the frame that has just arrived.
    pub fn search(&mut self, trail: &Trail, world: &World, n: u64, lag: u64, own: usize) {
        let then = n.saturating_sub(lag);
        let Some(eye) = trail.at(then, own) else { return };
        let frame = &trail.frames[then as usize % TRAIL];
        self.distances.clear();
        let places = frame.iter().enumerate().filter(|(i, _)| *i != own);
        self.distances.extend(places.clone().filter_map(|(_, at)| at.map(|at| square(eye, at))));
        if self.distances.len() < NEAREST {
            return;
        }
        let last = *self.distances.select_nth_unstable_by(NEAREST - 1, f32::total_cmp).1;
        let here: std::collections::HashSet<usize> =
            world.query::<&Networked>().iter().filter_map(|net| trail.names.get(&net.id()).copied()).collect();
        for (i, _) in places.filter(|(_, at)| at.is_some_and(|at| square(eye, at) < last * SURE * SURE)) {
            self.absent.0 += 1;
            self.absent.1 += u64::from(!here.contains(&i));
        }
    }

    /// Adds another guest's.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.absent = (self.absent.0 + other.absent.0, self.absent.1 + other.absent.1);
    }

    /// Forgets what was found so far.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.absent = (0, 0);
    }

    /// The age in frames that `part` (0 to 1) of what was looked at does not exceed.
    #[must_use]
    pub fn quantile(&self, part: f64) -> usize {
        let total: u64 = self.counts.iter().sum();
        let wanted = (total as f64 * part).ceil() as u64;
        let mut sum = 0;
        self.counts
            .iter()
            .position(|n| {
                sum += n;
                sum >= wanted
            })
            .unwrap_or(0)
    }
}

fn square(a: [f32; 2], b: [f32; 2]) -> f32 {
    (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_ages() {
        let mut ages = Ages::default();
        ages.counts[0] = 98;
        ages.counts[1] = 1;
        ages.counts[7] = 1;
        assert_eq!([0.5, 0.98, 0.99, 1.0].map(|part| ages.quantile(part)), [0, 0, 1, 7]);
    }
}
