//! The encoded values of one send, for all peers that do not see everything: each value is encoded once for each baseline, however
//! many peers it goes to.

use crate::block::bits;
use crate::codes::Chosen;
use crate::history::BLOCK;
use crate::publisher::Publisher;
use crate::rows::Place;
use crate::schema::Inner;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::tick::Tick;

/// What a value has become: up to 56 bits themselves and their number above them, or, of more, where they are in the cache's arena.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coded(u64);

/// In place of a number of bits: they are in the arena.
const AFAR: u64 = 0xff;

impl Coded {
    /// The bits, if they are here and not in the arena.
    #[inline]
    pub(crate) fn near(self) -> Option<(u64, u32)> {
        let len = self.0 >> 56;
        (len != AFAR).then_some((self.0 & ((1 << 56) - 1), len as u32))
    }

    /// How many bits it takes.
    #[inline]
    pub(crate) fn len(self) -> usize {
        let len = self.0 >> 56;
        if len == AFAR { (self.0 >> 32) as usize & 0xff_ffff } else { len as usize }
    }
}

/// By row and component, for the baseline that was asked for last: peers of one baseline are served one after the other. Whatever
/// else is asked for is encoded again.
#[derive(Default)]
pub(crate) struct ValueCache {
    slots: Vec<Slot>,
    /// Slots of each row.
    per_row: usize,
    arena: BitWriter,
    stamp: u32,
    sheet: Sheet,
}

/// Values against one baseline, encoded by blocks of rows. It takes eight bytes for each row of each column that was swept, beside what
/// [`SLOTS`] bounds, and keeps them: 5 MB for ten columns of 65 536 rows.
struct Sheet {
    base: Option<Tick>,
    blocks: usize,
    /// By column, then block: rows of which there is a value.
    have: Vec<u64>,
    /// By column, then row.
    coded: Vec<Vec<Coded>>,
    guesses: Vec<u32>,
    bits: BitWriter,
    places: [Place; BLOCK],
}

impl Default for Sheet {
    fn default() -> Self {
        let (have, coded, guesses, bits) = (Vec::new(), Vec::new(), Vec::new(), BitWriter::new());
        Self { base: None, blocks: 0, have, coded, guesses, bits, places: [(0, 0); BLOCK] }
    }
}

#[derive(Clone, Copy)]
struct Slot {
    /// Zero: none.
    key: u64,
    coded: Coded,
}

const EMPTY: Slot = Slot { key: 0, coded: Coded(0) };
/// The most slots of a row: more components than that change seldom in one send.
const SLOTS_PER_ROW: usize = 8;
/// The most slots: 4 MB.
const SLOTS: usize = 1 << 18;
/// The age that stands for no baseline.
const NO_BASE: u64 = 0xff;

impl ValueCache {
    /// A new send: nothing is encoded yet.
    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.sheet.base = None;
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.slots.fill(EMPTY);
            self.stamp = 1;
        }
    }

    /// Has slots for a publisher's rows. To be called before [`value`](Self::value).
    pub(crate) fn fit(&mut self, publisher: &Publisher) {
        self.per_row = (publisher.history.components() - 1).clamp(1, SLOTS_PER_ROW);
        let wanted = (publisher.block_count() * BLOCK * self.per_row).clamp(1, SLOTS);
        if self.slots.len() < wanted {
            self.slots.resize(wanted, EMPTY);
        }
    }

    /// Turns to a baseline for [`ready`](Self::ready) and [`at`](Self::at).
    pub(crate) fn open(&mut self, publisher: &Publisher, base: Tick) {
        let (sheet, blocks) = (&mut self.sheet, publisher.block_count());
        if sheet.base == Some(base) && sheet.blocks == blocks {
            return;
        }
        let columns = publisher.history.components();
        (sheet.base, sheet.blocks) = (Some(base), blocks);
        sheet.have.clear();
        sheet.have.resize(columns * blocks, 0);
        sheet.coded.resize(columns, Vec::new());
    }

    /// Encodes what is not encoded yet of some rows of a block, and, if others will want it too, of all rows that change in this send.
    pub(crate) fn ready(&mut self, schema: &Inner, publisher: &Publisher, c: usize, block: usize, rows: u64, shared: bool) {
        let (sheet, history) = (&mut self.sheet, &publisher.history);
        let have = &mut sheet.have[c * sheet.blocks + block];
        let Some(base) = sheet.base.filter(|_| rows & !*have != 0) else { return };
        let (now, layout) = (history.now(), schema.layout(c));
        let rows = if shared { rows | history.changed_in(c, block, now) } else { rows } & !*have;
        *have |= rows;
        let tables = Chosen::fixed(layout.tables(now.since(base)));
        history.gather(c, block, rows, base, &mut sheet.guesses);
        sheet.bits.clear();
        let guesses = &sheet.guesses[..BLOCK * layout.words()];
        layout.write_rows(rows, history.block_values(c, block), Some(guesses), tables, &mut sheet.bits, &mut sheet.places);
        let coded = &mut sheet.coded[c];
        if coded.len() < sheet.blocks * BLOCK {
            coded.resize(sheet.blocks * BLOCK, EMPTY.coded);
        }
        for bit in bits(rows) {
            let (start, len) = sheet.places[bit as usize];
            let (start, len) = (start as usize, usize::from(len));
            coded[block * BLOCK + bit as usize] = match len {
                0 => Coded(0),
                1..=56 => Coded((len as u64) << 56 | sheet.bits.peek(start, len as u32)),
                _ => {
                    let at = self.arena.len();
                    self.arena.append(&sheet.bits, start, len);
                    Coded(AFAR << 56 | (len as u64) << 32 | at as u64)
                }
            };
        }
    }

    /// A value that is [ready](Self::ready).
    #[inline]
    pub(crate) fn at(&self, c: usize, row: usize) -> Coded {
        self.sheet.coded[c][row]
    }

    /// A value against a baseline.
    #[inline]
    pub(crate) fn value(&mut self, schema: &Inner, publisher: &Publisher, c: usize, row: usize, base: Option<Tick>) -> Coded {
        let age = base.map_or(NO_BASE, |b| publisher.history.now().since(b));
        // 18 bits of row, 6 of component, 8 of age
        let what = (row as u64) << 14 | (c as u64) << 8 | age;
        let key = u64::from(self.stamp) << 32 | what;
        let mut at = row * self.per_row + c % self.per_row;
        if at >= self.slots.len() {
            at %= self.slots.len();
        }
        let slot = self.slots[at];
        if slot.key == key {
            return slot.coded;
        }
        let coded = self.encode(schema, publisher, c, row, base);
        self.slots[at] = Slot { key, coded };
        coded
    }

    fn encode(&mut self, schema: &Inner, publisher: &Publisher, c: usize, row: usize, base: Option<Tick>) -> Coded {
        let history = &publisher.history;
        let age = base.map_or(0, |b| history.now().since(b));
        let base = base.map(|tick| history.value_at(c, row, tick));
        self.absolute(|arena| schema.layout(c).write(history.value(c, row), base, age, arena))
    }

    /// A value for one peer alone.
    pub(crate) fn absolute(&mut self, write: impl FnOnce(&mut BitWriter)) -> Coded {
        let start = self.arena.len();
        write(&mut self.arena);
        let len = self.arena.len() - start;
        if len > 56 {
            return Coded(AFAR << 56 | (len as u64) << 32 | start as u64);
        }
        let bits = if len == 0 { 0 } else { self.arena.peek(start, len as u32) };
        self.arena.truncate(start);
        Coded((len as u64) << 56 | bits)
    }

    /// Writes a value of this send.
    #[inline]
    pub(crate) fn put(&self, coded: Coded, w: &mut BitWriter) {
        match coded.0 >> 56 {
            AFAR => w.append(&self.arena, coded.0 as u32 as usize, coded.len()),
            len => w.put(coded.0 & ((1 << 56) - 1), len as u32),
        }
    }
}
