//! Are two worlds equal? Digests per component over the quantised values, in no order, sent by the host on the control lane
//! and compared by each guest, which answers.

use crate::entities::name_in;
use crate::error::UsageError;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::view::View;
use hecs::World;
use tidelock_netcore::control::{Control, Digest, Verdict};
use xxhash_rust::xxh3::xxh3_64_with_seed;

impl Peer {
    /// The digest of each component over all networked entities of the world whose state travels, as it is there; the first is that
    /// of presence: which entities there are, of which kind, with which components. A component that names an entity without a name
    /// counts as not being there, as it is for others.
    #[must_use]
    pub fn digests(&self, world: &World) -> Vec<u64> {
        self.digests_of(world, None)
    }

    /// Host: the digests of the world as a guest is to see it, to compare with what [`digests`](Self::digests) gives there.
    ///
    /// # Errors
    /// [`UsageError::NoSuchPeer`].
    pub fn digests_for(&self, world: &World, guest: PeerId) -> Result<Vec<u64>, UsageError> {
        let link = self.link_to(guest).ok_or(UsageError::NoSuchPeer)?;
        Ok(self.digests_of(world, link.subscriber.view()))
    }

    fn digests_of(&self, world: &World, view: Option<&View>) -> Vec<u64> {
        let columns = self.schema.columns();
        let mut digests = vec![0u64; columns];
        let names = name_in(world);
        let mut words = Vec::new();
        let mut bytes = Vec::new();
        let sees = |net| view.is_none_or(|view| view.sees(net));
        // what every peer computes is not sent, and two peers need not be at the same step of it
        let sent = |kind: usize| !self.schema.kinds[kind].is_computed();
        for (_, record) in self.entities.iter().filter(|(_, record)| sent(record.kind) && sees(record.net)) {
            let hidden = view.and_then(|view| Some(view.ghost(view.ghost_named(record.net)?).sighting.hidden)).unwrap_or(0);
            let mut present = 0u64;
            for (c, digest) in digests.iter_mut().enumerate().skip(1).filter(|(c, _)| (hidden | self.schema.fine) >> c & 1 == 0) {
                let column = &self.schema.component(c).column;
                words.clear();
                words.resize(column.layout().words(), 0);
                let quantised = column.quantise_one(world, record.entity, &names, &mut words);
                if view.is_some() && column.layout().has_entities() {
                    column.layout().mask_entities(&mut words, sees);
                }
                if !matches!(quantised, Some(Ok(()))) || !column.is_complete(&words) {
                    continue;
                }
                present |= 1 << c;
                bytes.clear();
                words.iter().for_each(|w| bytes.extend_from_slice(&w.to_le_bytes()));
                *digest = digest.wrapping_add(xxh3_64_with_seed(&bytes, record.net.0));
            }
            if world.contains(record.entity) {
                let presence = [record.kind as u64, present].map(u64::to_le_bytes).concat();
                digests[0] = digests[0].wrapping_add(xxh3_64_with_seed(&presence, record.net.0));
            }
        }
        digests
    }

    /// Host: sends every guest the digests of the world, as that guest sees it. Each guest compares them with its own and answers;
    /// both sides get [`News::Compared`]. Worlds are equal only when changes have stopped and everything has arrived, so do it then.
    ///
    /// # Errors
    /// [`UsageError::NotAllowed`] on a guest.
    pub fn compare(&mut self, world: &World) -> Result<(), UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("ask for a comparison"));
        }
        self.round += 1;
        let whole = self.digests(world);
        for index in 0..self.links.len() {
            let view = self.links[index].subscriber.view();
            let digests = if view.is_some() { self.digests_of(world, view) } else { whole.clone() };
            let parts = digests.into_iter().enumerate().map(|(c, d)| (c as u16, d)).collect();
            let link = &mut self.links[index];
            // a peer that cannot take it is found out at the next send
            let _ = link.post_control(&Control::Digest(Digest { round: self.round, parts }));
            link.compared = Some(self.round);
        }
        Ok(())
    }

    /// Guest: the host's digest has come. Compare, tell the game, answer.
    pub(crate) fn compare_digest(&mut self, world: &World, digest: &Digest) {
        let own = self.digests(world);
        let same = |(c, d): &(u16, u64)| own.get(usize::from(*c)) == Some(d);
        let differing: Vec<u16> = digest.parts.iter().filter(|p| !same(p)).map(|p| p.0).collect();
        let verdict = Control::Verdict(Verdict { round: digest.round, differing: differing.clone() });
        if let Some(link) = self.links.first_mut() {
            // a host that cannot take it is found out at the next send
            let _ = link.post_control(&verdict);
        }
        self.tell_compared(PeerId::HOST, &differing);
    }

    /// Host: a guest's answer. Only the first one to the newest round counts.
    pub(crate) fn hear_verdict(&mut self, index: usize, verdict: &Verdict) {
        let link = &mut self.links[index];
        if link.compared == Some(verdict.round) {
            link.compared = None;
            let peer = link.peer;
            self.tell_compared(peer, &verdict.differing);
        }
    }

    fn tell_compared(&mut self, peer: PeerId, differing: &[u16]) {
        let name = |c: &u16| match usize::from(*c) {
            0 => "presence".to_owned(),
            c if c < self.schema.columns() => self.schema.component(c).name.clone(),
            c => format!("component {c}"),
        };
        let differing = differing.iter().map(name).collect();
        self.news.push(News::Compared { peer, differing });
    }
}
