//! Which codings fit, learned from what is sent: for each age of a baseline, some of the rows that change are tried with every
//! guess, and what these were off by is counted. A sender's own affair: whatever it chooses stands in the packet.

use crate::block::bits;
use crate::codec;
use crate::codes::{self, ESCAPE, TABLES, TOKENS, Table};
use crate::codings::{Coding, Codings, MaskGuess};
use crate::forecast::Forecast;
use crate::history::{BLOCK, History};
use crate::layout::FieldCode;
use crate::packing::Packing;
use crate::publisher::Publisher;
use crate::schema::Inner;
use crate::trained::Tables;
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
    /// The session's.
    pub(crate) trained: Option<Tables>,
    /// What is sent is recorded: only fixed tables are used, so that a recording says of each value which of them fits.
    records: bool,
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
    pub(crate) fn new(packing: Packing, trained: Option<Tables>) -> Self {
        Self { ages: Vec::new(), packing, trained, records: false, rate: 1.0, guess: Vec::new() }
    }

    /// What is sent is recorded from now on, or no longer. What was chosen before counts no more.
    pub(crate) fn record(&mut self, on: bool) {
        self.records = on;
        self.ages.clear();
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
        let trained = if self.records { &[] } else { Tables::codes(self.trained.as_ref()) };
        if fresh || aged.sends.is_multiple_of(SETTLED) {
            for c in bits(changed).map(|c| c as usize) {
                let sent = history.changed(c, history.now()).iter().map(|rows| u64::from(rows.count_ones())).sum();
                aged.components[c].decide(schema, c, age as u64, sent, trained, &mut aged.chosen.components[c]);
            }
        }
        if self.packing.masks {
            guess_masks(history, base, changed, &mut aged.chosen);
        }
        // a derived `clone_from` would make a new list
        into.components.clone_from(&aged.chosen.components);
        into.trained.clone_from(&self.trained);
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

    /// The forecast and the tables that would have taken the fewest bits; `sent`: how many rows go together, once they are named.
    fn decide(&self, schema: &Inner, c: usize, age: u64, sent: u64, trained: &[Table], into: &mut Coding) {
        let layout = schema.layout(c);
        let usual = layout.tables(age);
        let mut best: Option<(f64, Forecast, SmallVec<[u8; 8]>)> = None;
        for forecast in Forecast::ALL {
            let rows = u64::from(self.rows[forecast as usize]);
            // too few to tell what comes next
            if rows < 8 || usual.is_empty() {
                continue;
            }
            let counts = &self.counts[forecast as usize];
            let named = |bits: u64| bits * rows / sent.max(1);
            let (mut total, mut tables) = (named(2), SmallVec::new());
            for (count, code) in counts.iter().zip(layout.codes.iter().filter(|code| code.has_table())) {
                let before = tables.last().copied();
                let (bits, table) = cheapest(count, code.absolute_bits(), trained, |table| named(naming(table, before, trained)));
                total += bits;
                tables.push(table);
            }
            let each = total as f64 / rows as f64;
            if best.as_ref().is_none_or(|b| each < b.0 * 0.99) {
                best = Some((each, forecast, tables));
            }
        }
        if let Some((_, forecast, tables)) = best {
            (into.forecast, into.tables) = (forecast, tables);
        }
    }
}

/// What it takes to name a table after another one, in bits.
fn naming(table: u8, before: Option<u8>, trained: &[Table]) -> u64 {
    let number = match table.checked_sub(codes::TRAINED) {
        None => 6,
        Some(_) => 6 + u64::from(codes::number_bits(trained.len())),
    };
    match before {
        None => number,
        Some(before) if before == table => 1,
        Some(_) => 1 + number,
    }
}

/// The table that takes the fewest bits for these tokens, and how many; `named`: of what it takes to name one.
fn cheapest(count: &[u32; TOKENS], absolute: u32, trained: &[Table], named: impl Fn(u8) -> u64) -> (u64, u8) {
    // most tokens never come, and there are many tables to ask
    let seen: SmallVec<[(usize, u64); TOKENS]> =
        count.iter().enumerate().filter(|(_, n)| **n > 0).map(|(token, n)| (token, u64::from(*n))).collect();
    let cost = |table: &Table| {
        let bits =
            |token: usize| u64::from(table.cost[token]) + if table.absolute >> token & 1 != 0 { absolute.into() } else { 0 };
        seen.iter().map(|&(token, n)| n * bits(token)).sum::<u64>()
    };
    let fixed = (0..TABLES as u8).map(|number| (codes::table(number), number));
    let all = fixed.chain(trained.iter().zip(codes::TRAINED..));
    all.map(|(table, number)| (cost(table) + named(number), number)).min().unwrap_or((0, codes::RAW))
}
