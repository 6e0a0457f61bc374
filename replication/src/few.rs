//! Lists that are mostly of one item, or none, and stand in every record.

use smallvec::SmallVec;

/// A list whose first item stands in itself. It takes half of what one with room for two takes.
#[derive(Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    /// Empty if there is no first.
    rest: Option<Box<SmallVec<[T; 4]>>>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, rest: None }
    }
}

impl<T: PartialEq> Few<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }

    pub(crate) fn push(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.get_or_insert_default().push(item);
        }
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        if let Some(rest) = &mut self.rest {
            rest.retain(|item| keep(item));
        }
        if self.first.as_ref().is_some_and(|first| !keep(first)) {
            self.first = self.rest.as_mut().filter(|rest| !rest.is_empty()).map(|rest| rest.remove(0));
        }
        self.rest.take_if(|rest| rest.is_empty());
    }

    pub(crate) fn contains(&self, item: &T) -> bool {
        self.iter().any(|own| own == item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_few_are_as_a_list(steps in prop::collection::vec((0u8..9, any::<bool>()), 0..40)) {
            let (mut few, mut list) = (Few::default(), Vec::new());
            for (item, gone) in steps {
                if gone {
                    few.retain(|own| own % 3 != item % 3);
                    list.retain(|own| own % 3 != item % 3);
                } else {
                    few.push(item);
                    list.push(item);
                }
                prop_assert!(few.iter().eq(&list));
                prop_assert_eq!(few.contains(&item), list.contains(&item));
            }
        }
    }
}
