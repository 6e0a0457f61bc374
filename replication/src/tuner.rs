//! Which codings fit, learned from what is sent: for each age of a baseline, some of the rows that change are tried with every
//! guess, and what these were off by is counted. A sender's own affair: whatever it chooses stands in the packet.

use crate::block::bits;
use crate::codec;
use crate::codes::{self, ESCAPE, TABLES, TOKENS};
use crate::codings::{Coding, Codings, MaskGuess};
use crate::forecast::Forecast;
use crate::history::{BLOCK, History};
use crate::layout::FieldCode;
use crate::packing::Packing;
use crate::publisher::Publisher;
use crate::schema::Inner;
use smallvec::SmallVec;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Rows of a component that are tried in one send.
const TRIED: usize = 12;
/// With so many counted, all counts are halved: what was long ago matters less.
const COUNTED: u32 = 1024;
/// Sends after which a choice is made anew, once enough is counted.
const SETTLED: u32 = 8;
/// Blocks whose masks are looked at.
const BLOCKS: usize = 32;

/// What is known for each age.
pub(crate) struct Tuner {
    ages: Vec<Option<Box<Aged>>>,
    packing: Packing,
    rate: f64,
    guess: Vec<u32>,
}

/// What is known for one age of baselines.
struct Aged {
    components: Vec<Learned>,
    sends: u32,
    chosen: Codings,
}

/// What is known of one component.
#[derive(Default)]
struct Learned {
    /// By [`Forecast`], then field: how often each token came.
    counts: [Vec<[u32; TOKENS]>; 3],
    /// How many rows that were; none of a forecast that cannot be made.
    rows: [u32; 3],
    /// Where to begin next.
    turn: usize,
}

impl Tuner {
    pub(crate) fn new(packing: Packing) -> Self {
        Self { ages: Vec::new(), packing, rate: 1.0, guess: Vec::new() }
    }

    /// Session ticks a second.
    pub(crate) fn set_rate(&mut self, rate: u32) {
        self.rate = rate.into();
    }

    /// Session ticks in seconds.
    pub(crate) fn seconds(&self, elapsed: u64) -> f64 {
        elapsed as f64 / self.rate
    }

    /// How what changed in the open send is coded against `base`, `elapsed` session ticks ago.
    pub(crate) fn choose(&mut self, schema: &Inner, publisher: &Publisher, base: Tick, elapsed: u64, into: &mut Codings) {
        let history = &publisher.history;
        let age = history.now().since(base) as usize;
        if self.ages.len() <= age {
            self.ages.resize_with(age + 1, || None);
        }
        let mut aged = self.ages[age].take().unwrap_or_else(|| Box::new(Aged::new(schema)));
        let elapsed = elapsed.min(limits::ELAPSED);
        let changed = history.changed_components(history.now()) & !1;
        let older = older(history.now(), base);
        let seconds = self.seconds(elapsed);
        for c in bits(changed).map(|c| c as usize).filter(|c| schema.layout(*c).can_go_on()) {
            self.try_out(schema, publisher, c, base, older, seconds, &mut aged.components[c]);
        }
        aged.sends += 1;
        let fresh = aged.sends < 2 * SETTLED;
        if fresh || aged.sends.is_multiple_of(SETTLED) {
            for c in bits(changed).map(|c| c as usize) {
                aged.components[c].decide(schema, c, age as u64, &mut aged.chosen.components[c]);
            }
        }
        if self.packing.masks {
            guess_masks(history, base, changed, &mut aged.chosen);
        }
        // a derived `clone_from` would make a new list
        into.components.clone_from(&aged.chosen.components);
        into.elapsed = elapsed;
        if !self.packing.tables {
            for (c, coding) in into.components.iter_mut().enumerate() {
                coding.tables.clear();
                if coding.forecast != Forecast::Still {
                    // a forecast is told together with tables only: the usual ones
                    coding.tables.extend_from_slice(schema.layout(c).tables(age as u64));
                }
            }
        }
        if older.is_none() {
            // the ring does not reach far enough back this time
            for coding in into.components.iter_mut().filter(|coding| coding.forecast == Forecast::Motion) {
                coding.forecast = Forecast::Still;
                coding.tables.clear();
            }
        }
        self.ages[age] = Some(aged);
    }

    /// Tries some rows that changed with every guess.
    #[expect(clippy::too_many_arguments, reason = "the parts of one trial, borrowed apart")]
    fn try_out(
        &mut self,
        schema: &Inner,
        publisher: &Publisher,
        c: usize,
        base: Tick,
        older: Option<Tick>,
        seconds: f64,
        learned: &mut Learned,
    ) {
        let (history, layout, velocity) = (&publisher.history, schema.layout(c), schema.velocity(c));
        let blocks = history.changed(c, history.now());
        let mut left = TRIED;
        for _ in 0..blocks.len() {
            learned.turn = (learned.turn + 1) % blocks.len();
            for bit in bits(blocks[learned.turn]).take(3) {
                let row = learned.turn * BLOCK + bit as usize;
                if publisher.fresh(row) > older.unwrap_or(base) {
                    continue;
                }
                left -= 1;
                let (now, then) = (history.value(c, row), history.value_at(c, row, base));
                learned.count(Forecast::Still, layout, now, then);
                let guess = &mut self.guess;
                if let Some(older) = older.filter(|_| self.packing.forecasts) {
                    guess.clear();
                    guess.extend_from_slice(then);
                    layout.go_on(history.value_at(c, row, older), guess);
                    learned.count(Forecast::Motion, layout, now, guess);
                }
                if let Some(velocity) = velocity.filter(|v| self.packing.forecasts && publisher.ever(row) >> v.source & 1 != 0) {
                    guess.clear();
                    guess.extend_from_slice(then);
                    velocity.go_on(history.value_at(velocity.source, row, base), seconds, guess);
                    learned.count(Forecast::Velocity, layout, now, guess);
                }
                if left == 0 {
                    return;
                }
            }
        }
    }
}

/// The send as long before the baseline as that is before now, if both sides remember it.
pub(crate) fn older(now: Tick, base: Tick) -> Option<Tick> {
    let age = now.since(base);
    (age > 0 && 2 * age <= limits::BASE_AGE && base.0 > age).then(|| base.minus(age))
}

/// Takes for each component the guess of its masks that is off by the fewest rows.
fn guess_masks(history: &History, base: Tick, changed: u64, chosen: &mut Codings) {
    let mut before: &[u64] = &[];
    let at = |masks: &[u64], block: usize| masks.get(block).copied().unwrap_or(0);
    for c in bits(changed).map(|c| c as usize) {
        let (now, then) = (history.changed(c, history.now()), history.changed(c, base));
        let mut off = [0; 3];
        for block in (0..now.len()).step_by(now.len().div_ceil(BLOCKS).max(1)) {
            off[0] += now[block].count_ones();
            off[1] += (now[block] ^ at(then, block)).count_ones();
            off[2] += (now[block] ^ at(before, block)).count_ones();
        }
        let least = (0..3).min_by_key(|i| off[*i]).unwrap_or(0);
        chosen.components[c].mask = [MaskGuess::Nothing, MaskGuess::Base, MaskGuess::Before][least];
        before = now;
    }
}

impl Aged {
    fn new(schema: &Inner) -> Self {
        let columns = schema.columns();
        let mut chosen = Codings::default();
        chosen.reset(columns);
        let learned = |c: usize| {
            let fields = schema.layout(c).tables(1).len();
            Learned { counts: std::array::from_fn(|_| vec![[0; TOKENS]; fields]), ..Learned::default() }
        };
        Self { components: (0..columns).map(learned).collect(), sends: 0, chosen }
    }
}

impl Learned {
    fn count(&mut self, forecast: Forecast, layout: &crate::layout::Layout, now: &[u32], guess: &[u32]) {
        let (counts, rows) = (&mut self.counts[forecast as usize], &mut self.rows[forecast as usize]);
        let (mut at, mut field) = (0, 0);
        for &code in &layout.codes {
            if code.has_table() {
                let count = &mut counts[field];
                field += 1;
                match code {
                    FieldCode::Quat { .. } if now[at] != guess[at] => count[ESCAPE] += 1,
                    FieldCode::Quat { .. } => {
                        (1..4).for_each(|i| count[codes::token(codec::surprise(code, now[at + i], guess[at + i])).0] += 1);
                    }
                    _ => count[codes::token(codec::surprise(code, now[at], guess[at])).0] += 1,
                }
            }
            at += code.words();
        }
        *rows += 1;
        if *rows >= COUNTED {
            *rows /= 2;
            counts.iter_mut().flatten().for_each(|n| *n /= 2);
        }
    }

    /// The forecast and the tables that would have taken the fewest bits.
    fn decide(&self, schema: &Inner, c: usize, age: u64, into: &mut Coding) {
        let layout = schema.layout(c);
        let usual = layout.tables(age);
        let mut best: Option<(f64, Forecast, SmallVec<[u8; 8]>)> = None;
        for forecast in Forecast::ALL {
            let rows = self.rows[forecast as usize];
            // too few to tell what comes next
            if rows < 8 || usual.is_empty() {
                continue;
            }
            let counts = &self.counts[forecast as usize];
            let (mut total, mut tables) = (0, SmallVec::new());
            for (count, code) in counts.iter().zip(layout.codes.iter().filter(|code| code.has_table())) {
                let (bits, table) = cheapest(count, code.absolute_bits());
                total += bits;
                tables.push(table);
            }
            let each = total as f64 / f64::from(rows);
            if best.as_ref().is_none_or(|b| each < b.0 * 0.99) {
                best = Some((each, forecast, tables));
            }
        }
        if let Some((_, forecast, tables)) = best {
            (into.forecast, into.tables) = (forecast, tables);
        }
    }
}

/// The table that takes the fewest bits for these tokens, and how many.
fn cheapest(count: &[u32; TOKENS], absolute: u32) -> (u64, u8) {
    let cost = |table: u8| {
        let own = &codes::table(table).cost;
        let tokens = count.iter().zip(own).map(|(n, bits)| u64::from(*n) * u64::from(*bits)).sum::<u64>();
        if table == codes::RAW {
            let all: u64 = count.iter().map(|n| u64::from(*n)).sum();
            all * u64::from(absolute)
        } else {
            tokens + u64::from(count[ESCAPE]) * u64::from(absolute)
        }
    };
    (0..TABLES as u8).map(|table| (cost(table), table)).min().unwrap_or((0, codes::RAW))
}
