//! What a peer does with trained tables.

use super::{Recording, Tables};
use crate::peer::Peer;

impl Peer {
    /// Begins to count what this peer sends, to train [`Tables`] from; what was counted before is gone. Meanwhile it uses the fixed
    /// tables only. Costs nothing while it is off, and while it is on about as much as encoding. Values are counted once for each
    /// baseline that they are encoded against, not for each guest; what goes to guests that do not see everything is not counted, and
    /// neither is what would be more than [`limits::HISTOGRAMS`](tidelock_netcore::limits::HISTOGRAMS) histograms.
    pub fn start_recording(&mut self) {
        let digest = self.terms.digest();
        self.cache.recording = Some(Box::new(Recording::new(digest)));
        self.tuner.record(true);
    }

    /// What was counted since [`start_recording`](Self::start_recording), which ends. `None` if it was never called.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.tuner.record(false);
        self.cache.recording.take().map(|recording| *recording)
    }

    /// The trained tables of the session: of a host those of its [`Config`](crate::Config::tables), of a guest, once it is in, the
    /// host's.
    #[must_use]
    pub fn tables(&self) -> Option<&Tables> {
        self.tuner.trained.as_ref()
    }
}
