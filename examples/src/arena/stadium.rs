//! The arena as a stadium: the host moves nearly everything, each guest has one drone and gets only what is nearest to it, and the
//! worlds are equal in what each guest sees.

use crate::failure::Failure;
use crate::game::Pose;
use crate::roles::{Guest, Host};
use tidelock::Relevance;

/// Drones that each guest keeps in a stadium: it sees from there.
pub(crate) const DRONES: usize = 1;
/// A third of how far a guest sees, about: see [`Relevance::cell`].
const CELL: f32 = 40.0;

/// Lets guests see only so many of the nearest. Before the first one is in.
///
/// # Errors
/// None in a correct program.
pub(crate) fn limit(host: &mut Host, nearest: usize) -> Result<(), Failure> {
    let relevance = Relevance::nearest(nearest).place::<Pose>(|pose| [pose.x, pose.y, 0.0]).cell(CELL);
    Ok(host.peer.set_relevance(relevance)?)
}

/// The most that a guest sees: as the host shows it, or in a process without it, as there is in a guest's world.
pub(crate) fn visible(host: Option<&Host>, guests: &[Guest]) -> usize {
    match host {
        Some(host) => host.guests().iter().filter_map(|guest| host.peer.seen_count(*guest)).max().unwrap_or(0),
        None => guests.iter().map(|guest| guest.peer.entity_count()).max().unwrap_or(0),
    }
}
