//! Where entities are: cells of a grid, of which only occupied ones exist, and the search outwards from a point.

use rustc_hash::FxHashMap;

/// A cell's coordinates.
type Key = [i32; 3];

/// Cells are numbered up to this far from the origin; what is beyond is in the outermost ones. Sums of two such numbers fit.
const EDGE: f64 = (1 << 20) as f64;
/// Of cells and spots: none.
const NONE: u32 = u32::MAX;

pub(crate) struct Grid {
    size: f64,
    inverse: f64,
    cells: Vec<Cell>,
    by_key: FxHashMap<Key, u32>,
    /// Cells without members: their memory is used again.
    vacant: Vec<u32>,
    spots: Vec<Spot>,
    /// All occupied cells are within these, both inclusive.
    low: Key,
    high: Key,
    /// A cell at a border was vacated: the borders may be too wide.
    loose: bool,
}

struct Cell {
    key: Key,
    members: Vec<u32>,
}

/// Where a slot stands.
#[derive(Clone, Copy)]
struct Spot {
    key: Key,
    cell: u32,
    index: u32,
}

const NOWHERE: Spot = Spot { key: [0; 3], cell: NONE, index: 0 };

impl Grid {
    /// `size` is finite and positive.
    pub(crate) fn new(size: f32) -> Self {
        let (low, high) = EMPTY;
        let size = f64::from(size);
        Self {
            size,
            inverse: size.recip(),
            cells: Vec::new(),
            by_key: FxHashMap::default(),
            vacant: Vec::new(),
            spots: Vec::new(),
            low,
            high,
            loose: false,
        }
    }

    fn key(&self, at: [f32; 3]) -> Key {
        at.map(|x| {
            let cells = (f64::from(x) * self.inverse).clamp(-EDGE, EDGE);
            // rounds down; `floor` is a call where the processor is not known to have it
            let towards_zero = cells as i32;
            towards_zero - i32::from(cells < f64::from(towards_zero))
        })
    }

    /// Puts a slot where it is now. `at` is finite. Touches cells only when the slot changes its cell.
    #[inline]
    pub(crate) fn put(&mut self, slot: u32, at: [f32; 3]) {
        let key = self.key(at);
        if self.spots.get(slot as usize).is_none_or(|spot| spot.cell == NONE || spot.key != key) {
            self.shift(slot, key);
        }
    }

    fn shift(&mut self, slot: u32, key: Key) {
        self.take(slot);
        if self.spots.len() <= slot as usize {
            self.spots.resize(slot as usize + 1, NOWHERE);
        }
        let cell = match self.by_key.get(&key) {
            Some(&cell) => cell,
            None => self.occupy(key),
        };
        let members = &mut self.cells[cell as usize].members;
        self.spots[slot as usize] = Spot { key, cell, index: members.len() as u32 };
        members.push(slot);
    }

    fn occupy(&mut self, key: Key) -> u32 {
        let cell = self.vacant.pop().unwrap_or_else(|| {
            self.cells.push(Cell { key, members: Vec::new() });
            self.cells.len() as u32 - 1
        });
        self.cells[cell as usize].key = key;
        self.by_key.insert(key, cell);
        self.widen(key);
        cell
    }

    fn widen(&mut self, key: Key) {
        for (axis, k) in key.into_iter().enumerate() {
            self.low[axis] = self.low[axis].min(k);
            self.high[axis] = self.high[axis].max(k);
        }
    }

    /// Takes a slot out, if it is in.
    pub(crate) fn take(&mut self, slot: u32) {
        let Some(spot) = self.spots.get_mut(slot as usize) else { return };
        let Spot { key, cell, index } = std::mem::replace(spot, NOWHERE);
        if cell == NONE {
            return;
        }
        let members = &mut self.cells[cell as usize].members;
        members.swap_remove(index as usize);
        if let Some(&moved) = members.get(index as usize) {
            self.spots[moved as usize].index = index;
        } else if members.is_empty() {
            self.by_key.remove(&key);
            self.vacant.push(cell);
            self.loose |= (0..3).any(|axis| key[axis] == self.low[axis] || key[axis] == self.high[axis]);
        }
    }

    /// Draws the borders in again after cells at them were vacated.
    pub(crate) fn tighten(&mut self) {
        if std::mem::take(&mut self.loose) {
            (self.low, self.high) = EMPTY;
            for i in 0..self.cells.len() {
                if !self.cells[i].members.is_empty() {
                    self.widen(self.cells[i].key);
                }
            }
        }
    }
}

/// Borders around nothing.
const EMPTY: (Key, Key) = ([i32::MAX; 3], [i32::MIN; 3]);

/// A search outwards, one ring of cells after the other. It never visits many more cells than are occupied: when that many
/// were, it takes what is left at once.
pub(crate) struct Sweep {
    eye: [f64; 3],
    centre: Key,
    ring: i32,
    /// Cells looked up.
    spent: f64,
    done: bool,
}

impl Sweep {
    /// `eye` is finite.
    pub(crate) fn new(grid: &Grid, eye: [f32; 3]) -> Self {
        let centre = grid.key(eye);
        let done = grid.by_key.is_empty();
        // the first ring that meets the borders
        let ring =
            if done { 0 } else { (0..3).map(|a| (grid.low[a] - centre[a]).max(centre[a] - grid.high[a])).fold(0, i32::max) };
        Self { eye: eye.map(f64::from), centre, ring, spent: 0.0, done }
    }

    /// Adds the members of the next ring to `found`, and returns the distance below which everything was found by now. `None`
    /// when there is nothing left.
    pub(crate) fn next(&mut self, grid: &Grid, found: &mut Vec<u32>) -> Option<f64> {
        if self.done {
            return None;
        }
        let ring = self.ring;
        self.ring += 1;
        self.spent += self.volume(grid, ring) - self.volume(grid, ring - 1);
        if self.spent > 2.0 * grid.by_key.len() as f64 + 64.0 {
            self.done = true;
            let rest = grid.cells.iter().filter(|cell| self.ring_of(cell.key) >= ring);
            rest.for_each(|cell| found.extend_from_slice(&cell.members));
            return Some(f64::INFINITY);
        }
        self.visit(grid, ring, found);
        let reach = self.reach(grid, ring);
        self.done = reach.is_infinite();
        Some(reach)
    }

    fn ring_of(&self, key: Key) -> i32 {
        (0..3).map(|a| (key[a] - self.centre[a]).abs()).fold(0, i32::max)
    }

    /// The cells from −ring to +ring that are within the borders, on one axis.
    fn span(&self, grid: &Grid, axis: usize, ring: i32) -> (i32, i32) {
        ((self.centre[axis] - ring).max(grid.low[axis]), (self.centre[axis] + ring).min(grid.high[axis]))
    }

    fn volume(&self, grid: &Grid, ring: i32) -> f64 {
        let extent = |axis| {
            let (from, to) = self.span(grid, axis, ring);
            f64::from((to - from + 1).max(0))
        };
        if ring < 0 { 0.0 } else { extent(0) * extent(1) * extent(2) }
    }

    fn visit(&self, grid: &Grid, ring: i32, found: &mut Vec<u32>) {
        let mut look = |key: Key| {
            if let Some(&cell) = grid.by_key.get(&key) {
                found.extend_from_slice(&grid.cells[cell as usize].members);
            }
        };
        let [cx, cy, cz] = self.centre;
        let (xs, ys, zs) = (self.span(grid, 0, ring), self.span(grid, 1, ring), self.span(grid, 2, ring));
        let inner = self.span(grid, 1, ring - 1);
        let sides = |c: i32, span: (i32, i32)| [c - ring, c + ring].into_iter().filter(move |k| (span.0..=span.1).contains(k));
        for x in xs.0..=xs.1 {
            if (x - cx).abs() == ring {
                (ys.0..=ys.1).for_each(|y| (zs.0..=zs.1).for_each(|z| look([x, y, z])));
                continue;
            }
            sides(cy, ys).for_each(|y| (zs.0..=zs.1).for_each(|z| look([x, y, z])));
            sides(cz, zs).for_each(|z| (inner.0..=inner.1).for_each(|y| look([x, y, z])));
        }
    }

    /// How far it is from the eye to the nearest cell within the borders that was not visited.
    fn reach(&self, grid: &Grid, ring: i32) -> f64 {
        let mut reach = f64::INFINITY;
        for axis in 0..3 {
            let (from, to) = (self.centre[axis] - ring, self.centre[axis] + ring);
            if from > grid.low[axis] {
                reach = reach.min(self.eye[axis] - f64::from(from) * grid.size);
            }
            if to < grid.high[axis] {
                reach = reach.min(f64::from(to + 1) * grid.size - self.eye[axis]);
            }
        }
        // a place at a cell's border may be rounded into the next one
        (reach - grid.size * 1e-6).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(grid: &Grid, eye: [f32; 3]) -> Vec<(f64, Vec<u32>)> {
        let mut sweep = Sweep::new(grid, eye);
        let mut rings = Vec::new();
        let mut found = Vec::new();
        while let Some(reach) = sweep.next(grid, &mut found) {
            rings.push((reach, std::mem::take(&mut found)));
        }
        rings
    }

    #[test]
    fn everything_is_found_once_and_never_later_than_its_reach_says() {
        let mut grid = Grid::new(10.0);
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 400.0
        };
        let mut places: Vec<[f32; 3]> = (0..500).map(|i| [random(), if i % 3 == 0 { random() } else { 0.0 }, random()]).collect();
        places.extend([[1e30, 0.0, 0.0], [-3e38, 3e38, 0.0], [0.0, 0.0, -1e9], [0.0; 3]]);
        for (slot, at) in places.iter().enumerate() {
            grid.put(slot as u32, *at);
        }
        for eye in [[0.0; 3], [150.0, 3.0, -170.0], [1e30, 0.0, 0.0], [9e5, -2e6, 0.0], [-10.0, 10.0, 20.0]] {
            let mut reached = 0.0;
            let mut found = Vec::new();
            for (reach, members) in all(&grid, eye) {
                for slot in members {
                    let d2: f64 = (0..3).map(|a| (f64::from(places[slot as usize][a]) - f64::from(eye[a])).powi(2)).sum();
                    assert!(d2.sqrt() >= reached, "slot {slot} at {d2} came after {reached} was reached from {eye:?}");
                    found.push(slot);
                }
                reached = reach;
            }
            found.sort_unstable();
            assert_eq!(found, (0..places.len() as u32).collect::<Vec<_>>(), "from {eye:?}");
        }
    }

    #[test]
    fn a_search_from_afar_ends_soon() {
        let mut grid = Grid::new(0.01);
        for (slot, x) in [-1e30f32, 0.0, 5.0, 1e30].into_iter().enumerate() {
            grid.put(slot as u32, [x, 0.0, 0.0]);
        }
        assert!(all(&grid, [3.0, 0.0, 0.0]).len() < 100);
        assert!(all(&grid, [3.0, 1e20, -1e20]).len() < 100);
    }

    #[test]
    fn vacated_cells_are_used_again_and_the_borders_are_drawn_in() {
        let mut grid = Grid::new(1.0);
        for step in 0..10_000 {
            grid.put(0, [step as f32, 0.0, 0.0]);
            grid.put(1, [0.0, 0.0, 0.0]);
        }
        assert!(grid.cells.len() <= 3, "{} cells for two slots", grid.cells.len());
        grid.take(0);
        grid.take(0);
        grid.tighten();
        assert_eq!((grid.low, grid.high), ([0; 3], [0; 3]));
        grid.take(1);
        assert!(all(&grid, [0.0; 3]).is_empty());
    }
}
