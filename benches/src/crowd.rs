//! The crowd: the world that all workload benches of the state stream run. Values are made by generators with fixed seeds, so
//! that other libraries can be measured on the very same changes.

/// The set of movers is drawn anew every so many ticks.
const MOVER_TICKS: u64 = 60;
/// With [`Motion::Turning`], movers turn every so many ticks.
const TURN_TICKS: u64 = 30;
/// Seconds of a tick.
const DT: f32 = 1.0 / 60.0;
/// Each tick, one of so many entities loses or wins health.
const STRATUM: usize = 100;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Generator(u64);

impl Generator {
    /// Starts at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        b ^ b >> 31
    }

    /// 0 to 1, in 2²⁴ steps.
    pub(crate) fn unit(&mut self) -> f32 {
        const STEPS: f32 = 16_777_216.0;
        (self.bits() >> 40) as f32 / STEPS
    }

    /// −1 to 1.
    pub(crate) fn signed(&mut self) -> f32 {
        self.unit() * 2.0 - 1.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Three values of −`x` to `x`, `y`, `z`.
    fn vector(&mut self, x: f32, y: f32, z: f32) -> [f32; 3] {
        [self.signed() * x, self.signed() * y, self.signed() * z]
    }
}

/// Do velocities change?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// Never: the best case for predicting positions.
    Steady,
    /// Each mover's is drawn anew every 30 ticks.
    Turning,
}

/// The state of everybody, and what the last tick changed of it.
pub struct Crowd {
    /// Metres.
    pub position: Vec<[f32; 3]>,
    /// Unit quaternions x, y, z, w.
    pub rotation: Vec<[f32; 4]>,
    /// Metres per second.
    pub velocity: Vec<[f32; 3]>,
    /// 1 to 100.
    pub health: Vec<u16>,
    spin: Vec<[f32; 3]>,
    /// Whose position and rotation changed in the last tick; ascending.
    pub moved: Vec<u32>,
    /// Whose health changed in the last tick; ascending.
    pub hurt: Vec<u32>,
    /// Did the movers' velocities change in the last tick?
    pub turned: bool,
    changed: f32,
    /// Movers are drawn from so many neighbours.
    window: usize,
    motion: Motion,
    chance: Generator,
    turns: Generator,
    tick: u64,
}

impl Crowd {
    /// `n` entities, of which the part `changed` moves.
    #[must_use]
    pub fn new(n: usize, changed: f32, motion: Motion) -> Self {
        Self::another(0, n, changed, motion)
    }

    /// The same law, other chance; 0 is the one that others were measured with.
    #[must_use]
    pub fn another(world: u64, n: usize, changed: f32, motion: Motion) -> Self {
        let mut made = Generator::new(1 + 3 * world);
        let mut crowd = Self {
            position: Vec::with_capacity(n),
            rotation: Vec::with_capacity(n),
            velocity: Vec::with_capacity(n),
            health: vec![100; n],
            spin: Vec::with_capacity(n),
            moved: Vec::new(),
            hurt: Vec::new(),
            turned: false,
            changed,
            window: n,
            motion,
            chance: Generator::new(2 + 3 * world),
            turns: Generator::new(3 + 3 * world),
            tick: 0,
        };
        for _ in 0..n {
            crowd.position.push([made.signed() * 400.0, made.signed() * 400.0, made.unit() * 30.0]);
            crowd.rotation.push(unit([made.signed(), made.signed(), made.signed(), made.signed()]));
            crowd.velocity.push(made.vector(6.0, 6.0, 2.0));
            crowd.spin.push(made.vector(3.0, 3.0, 3.0));
        }
        crowd
    }

    /// Each time, the movers are drawn from `window` neighbours in the order of their birth instead of from all. So many are there
    /// at least; there are no more movers than that.
    #[must_use]
    pub fn within(mut self, window: usize) -> Self {
        self.window = window.clamp(1.min(self.len()), self.len());
        self
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.position.len()
    }

    /// Nobody there?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.position.is_empty()
    }

    /// One tick.
    pub fn step(&mut self) {
        if self.tick.is_multiple_of(MOVER_TICKS) {
            self.draw_movers();
        }
        self.turned = self.motion == Motion::Turning && self.tick > 0 && self.tick.is_multiple_of(TURN_TICKS);
        self.tick += 1;
        for k in 0..self.moved.len() {
            let i = self.moved[k] as usize;
            if self.turned {
                self.velocity[i] = self.turns.vector(6.0, 6.0, 2.0);
            }
            self.advance(i);
        }
        self.hurt.clear();
        if self.changed == 0.0 {
            return;
        }
        for first in (0..self.len() / STRATUM).map(|s| s * STRATUM) {
            let i = first + self.chance.below(STRATUM);
            let by = (self.chance.bits() % 98) as u16;
            self.health[i] = (self.health[i] + 1 + by) % 100 + 1;
            self.hurt.push(i as u32);
        }
    }

    fn advance(&mut self, i: usize) {
        for (at, speed) in self.position[i].iter_mut().zip(self.velocity[i]) {
            *at = (*at + speed * DT + self.chance.signed() * 0.01).clamp(-500.0, 500.0);
        }
        let mut turn = [0.0, 0.0, 0.0, 1.0];
        for (part, spin) in turn.iter_mut().zip(self.spin[i]) {
            *part = spin * DT * 0.5 + self.chance.signed() * 0.002;
        }
        self.rotation[i] = unit(product(unit(turn), self.rotation[i]));
    }

    /// The first steps of a Fisher and Yates shuffle.
    fn draw_movers(&mut self) {
        let n = self.window;
        let count = ((self.len() as f32 * self.changed).round() as usize).min(n);
        let first = if n < self.len() { self.chance.below(self.len() - n + 1) } else { 0 };
        self.moved.clear();
        self.moved.extend(first as u32..(first + n) as u32);
        for i in 0..count {
            let other = i + self.chance.below(n - i);
            self.moved.swap(i, other);
        }
        self.moved.truncate(count);
        self.moved.sort_unstable();
    }
}

fn unit(q: [f32; 4]) -> [f32; 4] {
    let length = (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]).sqrt();
    q.map(|part| part / length)
}

/// The Hamilton product. The order of the sums is part of the definition: floats depend on it.
fn product(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
    let ([ax, ay, az, aw], [bx, by, bz, bw]) = (a, b);
    [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movers_are_neighbours_where_they_are_to_be() {
        let mut crowd = Crowd::new(5000, 0.1, Motion::Steady).within(800);
        let mut firsts = std::collections::BTreeSet::new();
        for _ in 0..240 {
            crowd.step();
            let (first, last) = (crowd.moved[0], crowd.moved[crowd.moved.len() - 1]);
            assert!(crowd.moved.len() == 500 && last - first < 800, "{first} to {last}");
            firsts.insert(first);
        }
        assert_eq!(firsts.len(), 4, "drawn anew every 60 ticks");
    }

    /// FNV-1a over 32-bit words.
    fn digest(crowd: &Crowd) -> u64 {
        let floats = |rows: &[[f32; 3]]| rows.as_flattened().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let rotations = crowd.rotation.as_flattened().iter().map(|x| x.to_bits());
        let words = floats(&crowd.position).into_iter().chain(rotations).chain(floats(&crowd.velocity));
        let words = words.chain(crowd.health.iter().map(|h| u32::from(*h))).chain(crowd.moved.iter().copied());
        let words = words.chain(crowd.hurt.iter().copied());
        words.fold(0xcbf2_9ce4_8422_2325, |h, w| (h ^ u64::from(w)).wrapping_mul(0x0100_0000_01b3))
    }

    /// The numbers come from the definition that other libraries were measured with.
    #[test]
    fn the_crowd_is_the_one_that_others_were_measured_with() {
        let pins = [
            (
                1000,
                0.1,
                [
                    0x4266_2a0b_1c59_b11f,
                    0xe81c_77d3_5406_6bf1,
                    0xea4a_7d6b_07b6_0fed,
                    0x9430_c128_9f0f_e1a8,
                    0x12c7_bb9d_8e90_a406,
                ],
            ),
            (
                300,
                1.0,
                [
                    0xa812_6082_8274_e55f,
                    0xa19e_9dfa_a2f2_e009,
                    0xa864_c343_db4c_fe54,
                    0x1f21_cd8e_1196_20ca,
                    0x1dca_fff5_a342_67df,
                ],
            ),
        ];
        for (n, changed, digests) in pins {
            let mut crowd = Crowd::new(n, changed, Motion::Steady);
            assert_eq!(crowd.position[7].map(f32::to_bits), [3_266_512_635, 3_282_126_704, 1_105_506_714]);
            let mut ticks = 0;
            for (until, pinned) in [0, 1, 60, 61, 130].into_iter().zip(digests) {
                (ticks..until).for_each(|_| crowd.step());
                ticks = until;
                assert_eq!(digest(&crowd), pinned, "{n} entities, {changed} of them moving, tick {until}");
            }
        }
    }

    #[test]
    fn turning_changes_velocities_and_nothing_else_that_is_drawn() {
        let (mut steady, mut turning) = (Crowd::new(500, 0.2, Motion::Steady), Crowd::new(500, 0.2, Motion::Turning));
        for tick in 0..90 {
            steady.step();
            turning.step();
            assert_eq!(turning.turned, [30, 60].contains(&tick), "tick {tick}");
            assert_eq!((&steady.moved, &steady.hurt, &steady.rotation), (&turning.moved, &turning.hurt, &turning.rotation));
        }
        assert_ne!(steady.velocity, turning.velocity);
        assert_ne!(steady.position, turning.position);
    }
}
