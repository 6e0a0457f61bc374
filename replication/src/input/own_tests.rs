use super::*;
use crate::Press;
use crate::Replicate;
use proptest::prelude::*;
use tidelock_netcore::input::UpHead;
use tidelock_netcore::packet::PacketKind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    x: f32,
    jump: Press,
}

fn entry() -> InputEntry {
    InputEntry::new::<Stick>("stick").unwrap()
}

fn put(own: &mut OwnInput, tick: u64, x: i32, presses: u32) {
    own.latched = vec![(100 + x) as u32, presses];
    own.fold(Tick(tick));
    own.log(tick as i64, drawn::UNTOLD);
}

/// What a packet says: ticks, and x in hundredths and presses of each.
fn told(own: &OwnInput, limit: usize) -> Vec<(u64, u32, u32)> {
    let (entry, mut w, mut words) = (entry(), BitWriter::new(), Vec::new());
    own.write(&entry, None, limit, &mut w);
    let bytes = w.to_bytes();
    let mut r = BitReader::new(&bytes);
    assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::Input));
    let head = UpHead::read(&mut r, own.newest()).unwrap().inputs.unwrap();
    read(&entry, head, &mut r, &mut words, &mut Vec::new()).unwrap();
    words.chunks(2).zip(head.oldest().0..).map(|(input, tick)| (tick, input[0], input[1])).collect()
}

/// The example of `docs/WIRE.md`.
#[test]
fn three_ticks_byte_for_byte() {
    let mut own = OwnInput::new(&entry().default);
    put(&mut own, 299, 0, 0);
    put(&mut own, 300, 0, 0);
    put(&mut own, 301, 25, 1);
    let mut w = BitWriter::new();
    own.write(&entry(), None, 8000, &mut w);
    assert_eq!(w.len(), 27 + 16 + 1 + 1 + 8 + 3 + 1);
    let hex: Vec<_> = w.to_bytes().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex.join(" "), "b3 25 40 20 03 c8 44 00");
    assert_eq!(told(&own, 8000), [(299, 100, 0), (300, 100, 0), (301, 125, 1)]);
}

#[test]
fn what_is_confirmed_is_not_sent_again_and_what_is_old_is_given_up() {
    let mut own = OwnInput::new(&entry().default);
    for tick in 1..=100 {
        put(&mut own, tick, tick as i32 % 50, 0);
    }
    let all = told(&own, 8000);
    assert_eq!((all.len(), all[0].0, all[63]), (limits::INPUT_WINDOW, 37, (100, 100, 0)));
    assert_eq!(own.confirm(Tick(80)), Some(80), "how far ahead that one was");
    assert_eq!(own.confirm(Tick(80)), None, "and that only once");
    assert_eq!(own.confirm(Tick(50)), None);
    assert_eq!(told(&own, 8000).len(), 20);
    assert_eq!(told(&own, 8000)[0].0, 81);
    assert_eq!(own.confirm(Tick(100)), Some(100));
    assert!(own.is_empty());
}

#[test]
fn a_packet_holds_ticks_in_a_row_and_the_newest_if_there_is_no_room() {
    let mut own = OwnInput::new(&entry().default);
    for tick in (1..=20).chain(30..=69) {
        put(&mut own, tick, (tick as i32 * 37) % 100, tick as u32);
    }
    assert_eq!(told(&own, 8000)[0].0, 30, "what was skipped has no input");
    let little = told(&own, 200);
    assert!((5..20).contains(&little.len()) && little.last() == Some(&(69, 100 + (69 * 37) % 100, 69)), "{little:?}");
    assert_eq!(told(&own, 1).len(), 1, "one is always written");
}

#[test]
fn a_packet_that_is_cut_or_goes_on_or_holds_what_no_input_is_counts_as_nothing() {
    let mut own = OwnInput::new(&entry().default);
    for tick in 1..=9 {
        put(&mut own, tick, tick as i32, 0);
    }
    let (entry, mut w, mut words) = (entry(), BitWriter::new(), Vec::new());
    own.write(&entry, None, 8000, &mut w);
    let bytes = w.to_bytes();
    let mut parse = |bytes: &[u8]| {
        let mut r = BitReader::new(bytes);
        PacketKind::read(&mut r)?;
        let head = UpHead::read(&mut r, Tick(9))?.inputs.unwrap();
        read(&entry, head, &mut r, &mut words, &mut Vec::new())
    };
    assert_eq!(parse(&bytes), Ok(()));
    for cut in 0..bytes.len() {
        assert!(parse(&bytes[..cut]).is_err(), "{cut} bytes");
    }
    assert!(parse(&[&bytes[..], &[0]].concat()).is_err());
    // x of the first is beyond 200 hundredths
    let mut beyond = bytes;
    beyond[3] = beyond[3] & 7 | 201 << 3;
    beyond[4] = beyond[4] & !7 | 201 >> 5;
    assert!(parse(&beyond).is_err());
}

proptest! {
    #[test]
    fn random_bytes_never_panic_and_take_no_more_than_a_window(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (mut r, mut words) = (BitReader::new(&bytes), Vec::new());
        if let Ok(UpHead { inputs: Some(head), .. }) = UpHead::read(&mut r, Tick(1000)) {
            let _ = read(&entry(), head, &mut r, &mut words, &mut Vec::new());
        }
        prop_assert!(words.len() <= 2 * limits::INPUT_WINDOW);
    }
}

/// What is set takes effect so many ticks later; a change of the delay loses no press.
#[test]
fn a_delay_holds_inputs_back() {
    let mut own = OwnInput::new(&[0, 0]);
    let mut run = |tick: u64, delay: usize| {
        own.delay = delay;
        own.latched = vec![tick as u32, tick as u32];
        own.fold(Tick(tick));
        own.value[0]
    };
    let mut all = |ticks: std::ops::RangeInclusive<u64>, delay| ticks.map(|t| run(t, delay)).collect::<Vec<_>>();
    assert_eq!(all(1..=3, 0), [1, 2, 3]);
    assert_eq!(all(4..=8, 3), [4, 4, 4, 4, 5], "what was set first fills the ticks that have nothing yet");
    assert_eq!(all(9..=13, 1), [6, 7, 8, 11, 12], "what was said of a tick holds, whatever the delay is then");
}
