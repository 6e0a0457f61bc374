//! Which of the ways to make packets small, and to make them once for several guests, are in use.

/// How a peer packs the state that it publishes. Everything is on, and there is no reason to turn anything off but to find out
/// whether it is at fault, or what it gives: receivers understand every combination, and the peers of a session may differ.
///
/// In debug builds the environment variable `TIDELOCK_PACKING` decides what [`Config::default`](crate::Config) has: `none`, or
/// what is to be left out, separated by commas (`TIDELOCK_PACKING=forecasts,masks`), by the names of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Guests who are told the very same are sent the same packets, made once.
    pub packets: bool,
    /// Guests who are told the same of a block of 64 rows get it as it was written for another.
    pub blocks: bool,
    /// A value is encoded once for all guests that have the same baseline.
    pub values: bool,
    /// Values are guessed from motion and from velocities, and the difference is sent.
    pub forecasts: bool,
    /// The rows that change are guessed from those that changed before.
    pub masks: bool,
    /// Codes fit what was sent lately.
    pub tables: bool,
    /// Baselines are rather sends that came whole than the newest.
    pub bases: bool,
}

impl Packing {
    /// Everything on.
    pub const ALL: Self =
        Self { packets: true, blocks: true, values: true, forecasts: true, masks: true, tables: true, bases: true };
    /// Everything off.
    pub const NONE: Self =
        Self { packets: false, blocks: false, values: false, forecasts: false, masks: false, tables: false, bases: false };

    /// All but what is named. `None` if a name means nothing.
    #[must_use]
    pub fn without(names: &str) -> Option<Self> {
        let mut packing = Self::ALL;
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "none" => packing = Self::NONE,
                "packets" => packing.packets = false,
                "blocks" => packing.blocks = false,
                "values" => packing.values = false,
                "forecasts" => packing.forecasts = false,
                "masks" => packing.masks = false,
                "tables" => packing.tables = false,
                "bases" => packing.bases = false,
                _ => return None,
            }
        }
        Some(packing)
    }
}

impl Default for Packing {
    fn default() -> Self {
        let named = if cfg!(debug_assertions) { std::env::var("TIDELOCK_PACKING").ok() } else { None };
        let Some(named) = named else { return Self::ALL };
        Self::without(&named).unwrap_or_else(|| {
            tracing::error!("TIDELOCK_PACKING={named} names what there is not: nothing is left out");
            Self::ALL
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_left_out() {
        assert_eq!(Packing::without(""), Some(Packing::ALL));
        assert_eq!(Packing::without("none"), Some(Packing::NONE));
        assert_eq!(Packing::without("masks, tables"), Some(Packing { masks: false, tables: false, ..Packing::ALL }));
        assert_eq!(Packing::without("packets,blocks,values,forecasts,masks,tables,bases"), Some(Packing::NONE));
        assert_eq!(Packing::without("mask"), None);
    }
}
