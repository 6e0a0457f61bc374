//! What the tests of frames share: a schema, and a host's and a guest's end without peers between them.

use super::feed::{FrameFeed, Pace};
use super::frame::Origin;
use super::intake::{FrameIntake, Taken};
use super::sealer::{Present, Sealer};
use crate::PeerId;
use crate::{Press, Replicate, Schema};
use hecs::Entity;
use std::time::Duration;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};
use tidelock_netcore::frames::FramesHead;
use tidelock_netcore::packet::PacketKind;
use tidelock_netcore::tick::Tick;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
pub(super) struct Stick {
    #[net(range = 0..=200)]
    x: u8,
    jump: Press,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub(super) struct Go {
    unit: Option<Entity>,
    x: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub(super) struct Stop;

/// Orders: `go` (0) of 3 words, `stop` (1) of none.
pub(super) fn schema(input: bool) -> Schema {
    let schema = Schema::builder("frames").order::<Go>("go").order::<Stop>("stop");
    if input { schema.input::<Stick>("stick") } else { schema }.build().unwrap()
}

pub(super) const GO: u8 = 0;
pub(super) const STOP: u8 = 1;

/// The words of a `Go`.
pub(super) fn go(x: u16) -> Vec<u32> {
    vec![0, 0, u32::from(x)]
}

/// A seat whose peer is there and has no new input.
pub(super) fn quiet(peer: u16) -> Present<'static> {
    Present { peer: PeerId(peer), silent: false, input: Some((Origin::Absent, &[])) }
}

pub(super) fn arrived(peer: u16, words: &[u32]) -> Present<'_> {
    Present { peer: PeerId(peer), silent: false, input: Some((Origin::Arrived, words)) }
}

pub(super) const PACE: Pace = Pace { now: Duration::ZERO, trip: Duration::from_millis(100), repeats: 3 };

pub(super) fn at(millis: u64) -> Pace {
    Pace { now: Duration::from_millis(millis), ..PACE }
}

/// Hands the first frame over, as the reliable message does.
pub(super) fn begin(feed: &mut FrameFeed, sealer: &Sealer, schema: &Schema, intake: &mut FrameIntake) {
    let Some(frame) = feed.begin(sealer).unwrap() else { return };
    let mut w = BitWriter::new();
    frame.write_whole(&schema.0, &mut w);
    intake.begin(frame.tick, &schema.0, &mut BitReader::new(&w.to_bytes())).unwrap();
}

/// The next packet of a feed, if there is one.
pub(super) fn packet(feed: &mut FrameFeed, sealer: &Sealer, pace: Pace, limit: usize) -> Option<Vec<u8>> {
    let mut w = BitWriter::new();
    let written = feed.write(sealer, pace, limit, &mut w).unwrap();
    assert!(w.len() <= limit);
    written.then(|| w.to_bytes())
}

pub(super) fn head(bytes: &[u8], near: Tick) -> FramesHead {
    let mut r = BitReader::new(bytes);
    assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::Frames));
    FramesHead::read(&mut r, near).unwrap()
}

pub(super) fn take(intake: &mut FrameIntake, schema: &Schema, bytes: &[u8]) -> Result<Taken, BitError> {
    let mut r = BitReader::new(bytes);
    PacketKind::read(&mut r)?;
    let head = FramesHead::read(&mut r, intake.newest().unwrap_or_default())?;
    intake.take(head, &schema.0, &mut r)
}
