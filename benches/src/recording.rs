//! Recordings of rigid bodies: what a simulation showed, kept in memory, so that several ways of sending it get the very same.

/// One body at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pose {
    /// Metres.
    pub position: [f32; 3],
    /// A unit quaternion x, y, z, w.
    pub rotation: [f32; 4],
    /// Is it under the player's influence? Always `false` where there is no player.
    pub touched: bool,
}

/// All bodies at all moments.
pub struct Recording {
    bodies: usize,
    rate: u32,
    poses: Vec<Pose>,
}

impl Recording {
    /// An empty one of so many bodies, with `rate` moments per second.
    #[must_use]
    pub fn new(bodies: usize, rate: u32, moments: usize) -> Self {
        Self { bodies, rate, poses: Vec::with_capacity(bodies * moments) }
    }

    /// Adds a body to the moment that is being written; they come in the same order in each.
    pub fn push(&mut self, pose: Pose) {
        self.poses.push(pose);
    }

    /// How many bodies.
    #[must_use]
    pub fn bodies(&self) -> usize {
        self.bodies
    }

    /// Moments per second.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// How many moments.
    #[must_use]
    pub fn moments(&self) -> usize {
        self.poses.len() / self.bodies
    }

    /// All bodies at one moment.
    #[must_use]
    pub fn moment(&self, n: usize) -> &[Pose] {
        &self.poses[n * self.bodies..][..self.bodies]
    }
}
