use super::*;
use proptest::prelude::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What was taken, when, and the rate in force then.
#[derive(Default)]
struct Record {
    takes: Vec<(Duration, u64)>,
    rates: Vec<(Duration, u64)>,
}

impl Record {
    fn take(&mut self, now: Duration, bytes: usize) {
        self.takes.push((now, bytes as u64));
    }

    fn total(&self) -> u64 {
        self.takes.iter().map(|t| t.1).sum()
    }

    /// The largest rate in force in the second that ends at `end`.
    fn rate_before(&self, end: Duration) -> u64 {
        let ends = |i: usize| self.rates.get(i + 1).map_or(Duration::MAX, |r| r.0);
        let in_force = self.rates.iter().enumerate().filter(|(i, r)| r.0 <= end && ends(*i).saturating_add(WINDOW) > end);
        in_force.map(|(_, r)| r.1).max().expect("there is one from the beginning")
    }

    /// Looks at every second that ends with a take, which are the fullest ones.
    fn check(&self) -> Result<(), TestCaseError> {
        let (mut from, mut sum) = (0, 0);
        for &(at, bytes) in &self.takes {
            sum += bytes;
            while self.takes[from].0 + WINDOW <= at {
                sum -= self.takes[from].1;
                from += 1;
            }
            let limit = self.rate_before(at);
            prop_assert!(sum <= limit, "{sum} bytes in the second before {at:?}, of {limit}");
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Do {
    /// Time passes, in microseconds.
    Pass(u64),
    /// A part of the room is taken, in percent.
    State(usize),
    Message(usize),
    Rate(u64),
    Save(usize),
}

fn doing() -> impl Strategy<Value = Do> {
    prop_oneof![
        4 => (0u64..60_000).prop_map(Do::Pass),
        1 => (0u64..4_000_000).prop_map(Do::Pass),
        6 => (0usize..=100).prop_map(Do::State),
        3 => (0usize..=100).prop_map(Do::Message),
        1 => (2_000u64..200_000).prop_map(Do::Rate),
        1 => (0usize..3000).prop_map(Do::Save),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The promise, over whatever may happen: odd intervals, rates that change, stalls, time that stands still.
    #[test]
    fn no_second_sees_more_than_the_rate(
        rate in 2_000u64..2_000_000, interval in 2u64..200, wait: (bool, bool), doings in prop::collection::vec(doing(), 1..600),
    ) {
        let (mut allowance, mut now, mut record) = (Allowance::new(rate), Duration::ZERO, Record::default());
        record.rates.push((now, rate));
        for doing in doings {
            match doing {
                Do::Pass(micros) => now += Duration::from_micros(micros),
                Do::State(part) => {
                    let bytes = allowance.state_room(now, ms(interval), wait.0) * part / 100;
                    allowance.take_state(now, bytes);
                    record.take(now, bytes);
                }
                Do::Message(part) => {
                    let bytes = allowance.message_room(now, ms(interval), wait.1) * part / 100;
                    allowance.take_message(now, bytes);
                    record.take(now, bytes);
                }
                Do::Rate(rate) => {
                    allowance.set_rate(now, rate);
                    record.rates.push((now, rate));
                }
                Do::Save(bytes) => allowance.save_up(bytes),
            }
            prop_assert!(allowance.log.len() <= 1001 && allowance.higher.len() <= 1001);
        }
        record.check()?;
    }

    /// Debits and messages larger than the room are the only things beyond, and they are made up for.
    #[test]
    fn what_goes_beyond_is_made_up_for(
        rate in 2_000u64..200_000, interval in 5u64..100, sizes in prop::collection::vec((1usize..16_384, 0usize..40), 1..40),
    ) {
        let (mut allowance, mut now, mut record) = (Allowance::new(rate), Duration::ZERO, Record::default());
        record.rates.push((now, rate));
        let (mut debits, mut largest) = (0u64, 0);
        for (message, debit) in sizes {
            for _ in 0..1000 / interval {
                now += ms(interval);
                allowance.debit(now, debit);
                record.take(now, debit);
                debits += debit as u64;
                let room = allowance.state_room(now, ms(interval), true);
                allowance.take_state(now, room);
                record.take(now, room);
                let need = message.min(allowance.capacity() / 2);
                if allowance.message_room(now, ms(interval), false) >= need.max(1) {
                    allowance.take_message(now, message);
                    record.take(now, message);
                    largest = largest.max(message as u64);
                }
            }
        }
        let most = rate * now.as_millis() as u64 / 1000 + rate + debits.min(rate) + largest;
        let least_debits = debits.saturating_sub(rate * now.as_millis() as u64 / 1000);
        prop_assert!(record.total() <= most + least_debits, "{} of {most}", record.total());
    }

    /// Who always has something gets what the arithmetic of the second lets anyone have.
    #[test]
    fn who_always_sends_gets_the_rate(rate in 2_000u64..2_000_000, micros in 2_000u64..200_000) {
        let interval = Duration::from_micros(micros);
        let (mut allowance, mut now, mut taken) = (Allowance::new(rate), Duration::ZERO, 0);
        while now < Duration::from_secs(60) {
            let room = allowance.state_room(now, interval, false);
            allowance.take_state(now, room);
            taken += room;
            now += interval;
        }
        let sends = 1_000_000u64.div_ceil(micros);
        let best = 1e6 / (sends * micros) as f64;
        let got = taken as f64 / (60.0 * rate as f64);
        prop_assert!(got >= 0.998 * best, "{got} of {best}");
        prop_assert!(micros > 30_000 || got >= 0.97, "{got}");
        prop_assert!(got <= 1.0 + 1.0 / 60.0, "{got}");
    }

    /// The same where the time between sends varies, as a program's frames do.
    #[test]
    fn uneven_sends_get_the_rate_too(
        rate in 2_000u64..2_000_000, frames in prop::collection::vec(2_000u64..25_000, 5..100),
    ) {
        let (mut allowance, mut now, mut taken) = (Allowance::new(rate), Duration::ZERO, 0);
        for micros in frames.iter().cycle() {
            let room = allowance.room(now, ms(17));
            allowance.take_state(now, room);
            taken += room;
            now += Duration::from_micros(*micros);
            if now > Duration::from_secs(60) { break; }
        }
        let got = taken as f64 / (60.0 * rate as f64);
        prop_assert!(got >= 0.96, "{got}");
    }

    /// Neither of two that always want gets much less than half; one alone gets all.
    #[test]
    fn two_that_wait_share(rate in 2_000u64..2_000_000, interval in 2u64..30, need in 1usize..1300, small in 1usize..200, swap: bool) {
        // packets of more than a small part of a second are for lone large values
        let need = need.min(rate as usize / 25);
        let (mut allowance, mut now, mut state, mut messages) = (Allowance::new(rate), Duration::ZERO, 0, 0);
        let (state_need, message_need) = if swap { (small, need) } else { (need, small) };
        allowance.save_up(state_need + message_need);
        while now < Duration::from_secs(40) {
            let room = allowance.state_room(now, ms(interval), true);
            if room >= state_need {
                allowance.take_state(now, room);
                state += room;
            }
            while allowance.message_room(now, ms(interval), true) >= message_need {
                allowance.take_message(now, message_need);
                messages += message_need;
            }
            now += ms(interval);
        }
        let half = 20.0 * rate as f64;
        // what is left of a second is often too little for the next packet of either, and then goes unused
        let least = 0.9 * half;
        prop_assert!(state as f64 >= least && messages as f64 >= least, "{state} and {messages}, half is {half}");
        prop_assert!(state.abs_diff(messages) <= 5200, "{state} and {messages}");
    }

    /// What comes before messages, and state, get half each while both want.
    #[test]
    fn what_comes_first_leaves_state_its_half(rate in 2_000u64..2_000_000, interval in 2u64..30, part in 25u64..400) {
        let need = (rate / part).clamp(1, 1300) as usize;
        let (mut allowance, mut now, mut state, mut first) = (Allowance::new(rate), Duration::ZERO, 0, 0);
        allowance.save_up(2 * need);
        while now < Duration::from_secs(40) {
            while allowance.urgent_room(now, ms(interval), true) >= need {
                allowance.take_urgent(now, need);
                first += need;
            }
            let room = allowance.state_room(now, ms(interval), true);
            if room >= need {
                allowance.take_state(now, room);
                state += room;
            }
            now += ms(interval);
        }
        let least = 0.85 * 20.0 * rate as f64;
        prop_assert!(state as f64 >= least && first as f64 >= least, "{state} and {first}");
    }

    /// No burst is longer than two intervals or what was asked to be saved up, however long nothing was sent.
    #[test]
    fn nothing_is_hoarded(rate in 2_000u64..2_000_000, interval in 2u64..200, idle in 0u64..100_000, saving in 0usize..2600) {
        let mut allowance = Allowance::new(rate);
        allowance.save_up(saving);
        let most = (rate * 2 * interval / 1000).min(rate).max((rate / 8).clamp(128, 1300)).max(if saving > 0 { saving as u64 + rate * interval / 1000 } else { 0 });
        for now in [ms(0), ms(idle), ms(idle + 1)] {
            prop_assert!(allowance.room(now, ms(interval)) as u64 <= most);
        }
    }
}

#[test]
fn a_burst_is_followed_by_an_even_flow() {
    let mut allowance = Allowance::new(60_000);
    let interval = Duration::from_micros(16_667);
    let rooms: Vec<usize> = (0..300)
        .map(|i| {
            let room = allowance.room(interval * i, interval);
            allowance.take_state(interval * i, room);
            room
        })
        .collect();
    assert_eq!(rooms[0], 2000, "two intervals' worth, since nothing was sent before");
    assert!(rooms[70..].iter().all(|room| (980..=1020).contains(room)), "{rooms:?}");
}

#[test]
fn a_lower_rate_holds_at_once_and_stops_nothing() {
    let mut allowance = Allowance::new(1_000_000);
    let (mut before, mut after) = (0, 0);
    for i in 0..200u32 {
        let now = ms(10) * i;
        if i == 100 {
            allowance.set_rate(now, 10_000);
        }
        let room = allowance.room(now, ms(10));
        allowance.take_state(now, room);
        *(if i < 100 { &mut before } else { &mut after }) += room;
        assert!(i <= 100 || i > 195 || room > 0, "nothing is let through at {now:?}");
    }
    assert!(before > 900_000, "{before}");
    assert!((9_000..=12_000).contains(&after), "{after}: the old bucket is gone");
}

#[test]
fn a_message_larger_than_the_bucket_is_paid_for_before_the_next() {
    let mut allowance = Allowance::new(8_000);
    assert_eq!(allowance.message_room(ms(0), ms(20), false), 1000);
    allowance.take_message(ms(0), 9_000);
    let mut next = ms(0);
    let mut state = 0;
    while allowance.message_room(next, ms(20), true) == 0 {
        // state keeps its half
        let room = allowance.state_room(next, ms(20), true);
        allowance.take_state(next, room);
        state += room;
        next += ms(20);
        assert!(next < Duration::from_secs(4), "it is never paid");
    }
    assert!(next > ms(1500), "{next:?}: 8000 bytes at half the rate take two seconds");
    assert!(state > 5_000, "{state}");
}

#[test]
fn what_is_set_aside_is_for_debits_alone() {
    let mut allowance = Allowance::new(4_000);
    allowance.set_aside(100);
    let mut taken = 0;
    for frame in 0..100 {
        let now = ms(10 * frame);
        let room = allowance.room(now, ms(10));
        allowance.take_state(now, room);
        taken += room;
    }
    assert_eq!(taken, 3_900);
    allowance.debit(ms(995), 100);
    assert_eq!(allowance.used, 4_000);
}

#[test]
fn time_that_goes_back_gives_nothing() {
    let mut allowance = Allowance::new(10_000);
    let room = allowance.room(ms(500), ms(20));
    allowance.take_state(ms(500), room);
    assert_eq!(allowance.room(ms(100), ms(20)), 0);
    assert_eq!(allowance.room(ms(500), ms(20)), 0);
    assert!(allowance.room(ms(520), ms(20)) > 0);
}

/// What can always wait goes on after a message that was larger than the bucket, though no other message follows that one.
#[test]
fn a_debt_of_the_last_message_is_paid() {
    let mut allowance = Allowance::new(8000);
    let interval = ms(16);
    assert!(allowance.message_room(ms(0), interval, false) > 0);
    allowance.take_message(ms(0), 3000);
    assert_eq!(allowance.spare_room(ms(16), interval), 0);
    let spare: Vec<usize> = (2..200).map(|n| allowance.spare_room(ms(16 * n), interval)).collect();
    assert_eq!(spare[0], 0, "the debt comes first");
    assert!(spare.last().is_some_and(|room| *room > 0), "{spare:?}");
}
