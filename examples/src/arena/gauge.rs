//! What is measured while the game runs.

use crate::game::{Drone, Health, Pose};
use hecs::{Entity, Satisfies, World};
use std::collections::HashMap;
use std::time::Duration;
use tidelock::{Peer, PeerId, UsageError};

/// A guest's first moments are not measured: its delay is still being learned.
const WARM_UP: Duration = Duration::from_secs(1);

/// Bytes that the changes of the host's world would take as plain structs.
#[derive(Default)]
pub(crate) struct Raw {
    seen: HashMap<Entity, (Pose, Option<Health>)>,
    /// What the host decides.
    pub(crate) by_host: u64,
    /// What guests decide, each of some.
    pub(crate) by_guests: u64,
}

impl Raw {
    /// Counts what has changed since the last call.
    pub(crate) fn note(&mut self, world: &World) {
        for (entity, pose, health, drone) in world.query::<(Entity, &Pose, Option<&Health>, Satisfies<&Drone>)>().iter() {
            let now = (*pose, health.copied());
            let before = self.seen.insert(entity, now);
            if before.is_none_or(|before| before.0 != now.0) {
                *(if drone { &mut self.by_guests } else { &mut self.by_host }) += size_of::<Pose>() as u64;
            }
            if health.is_some() && before.is_none_or(|before| before.1 != now.1) {
                self.by_host += size_of::<Health>() as u64;
            }
        }
        self.seen.retain(|entity, _| world.contains(*entity));
    }

    /// Bytes to each of so many guests: everything but its own.
    pub(crate) fn per_guest(&self, guests: usize) -> f64 {
        let guests = guests.max(1) as f64;
        self.by_host as f64 + self.by_guests as f64 * (guests - 1.0) / guests
    }
}

/// What a guest sees of the others' entities.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// When the guest was admitted.
    pub(crate) since: Option<Duration>,
    /// Frames drawn.
    pub(crate) frames: u64,
    /// Those in which something was drawn later than what is known of it.
    pub(crate) starved: u64,
    /// Those in which something was stale: late enough to be faded.
    pub(crate) stale: u64,
    /// How long ago the host told about what is in the worst state, at worst.
    pub(crate) oldest: Duration,
    /// The same in this last second.
    pub(crate) oldest_now: Duration,
    /// Values that the host forced back to their owner.
    pub(crate) corrections: u64,
}

impl View {
    /// Draws a frame, so to speak.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn draw(&mut self, peer: &Peer, world: &World, now: Duration) -> Result<(), UsageError> {
        if peer.local() == PeerId::NOBODY {
            return Ok(());
        }
        let since = *self.since.get_or_insert(now);
        let (mut oldest, mut stale) = (Duration::ZERO, false);
        for (entity, pose) in peer.present::<Pose>(world, now)? {
            std::hint::black_box(pose);
            // what this guest decides or predicts, it draws as it is now
            if !peer.has_authority::<Pose>(world, entity) && !peer.is_owner(world, entity) {
                oldest = oldest.max(peer.age(world, entity).unwrap_or_default());
                stale |= peer.is_stale(world, entity);
            }
        }
        if now < since + WARM_UP {
            return Ok(());
        }
        self.frames += 1;
        self.starved += u64::from(oldest > peer.interpolation_delay());
        self.stale += u64::from(stale);
        self.oldest = self.oldest.max(oldest);
        self.oldest_now = self.oldest_now.max(oldest);
        Ok(())
    }
}
