//! The parameters of a kind: one type per kind, hidden where all kinds are treated alike.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use quell_qdisc::control::learnqueue::Table;
use quell_qdisc::policy::Policy;

use super::Built;
use crate::error::Error;

/// A kind's parameters, read and checked, with what they build.
pub trait Spec: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// The queue's parameters and who sets its knobs. `rate_bps` is the link's (mean) rate, from
    /// which some kinds take defaults.
    fn build(&self, rate_bps: u64) -> Built;

    /// What only a link's rate can show to be wrong.
    ///
    /// # Errors
    /// What is wrong.
    fn check_on(&self, _rate_bps: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Takes this network in place of the one that the words name; an error where none is asked, or
    /// one of another shape.
    ///
    /// # Errors
    /// If this kind asks no network, or another kind of network.
    fn set_policy(&mut self, _policy: Policy) -> Result<(), Error> {
        Err(Error::new("asks no network"))
    }

    /// Starts from this table of LearnQueue.
    ///
    /// # Errors
    /// If this kind has no table.
    fn start_from(&mut self, _table: Arc<Table>) -> Result<(), Error> {
        Err(Error::new("has no table to start from").remedy("write learnqueue"))
    }
}

/// A [`Spec`] of any kind.
pub(super) trait AnySpec: Debug + Send + Sync + Any {
    fn build(&self, rate_bps: u64) -> Built;
    fn check_on(&self, rate_bps: u64) -> Result<(), Error>;
    fn set_policy(&mut self, policy: Policy) -> Result<(), Error>;
    fn start_from(&mut self, table: Arc<Table>) -> Result<(), Error>;
    fn boxed(&self) -> Box<dyn AnySpec>;
    fn equals(&self, other: &dyn AnySpec) -> bool;
}

impl<S: Spec> AnySpec for S {
    fn build(&self, rate_bps: u64) -> Built {
        Spec::build(self, rate_bps)
    }
    fn check_on(&self, rate_bps: u64) -> Result<(), Error> {
        Spec::check_on(self, rate_bps)
    }
    fn set_policy(&mut self, policy: Policy) -> Result<(), Error> {
        Spec::set_policy(self, policy)
    }
    fn start_from(&mut self, table: Arc<Table>) -> Result<(), Error> {
        Spec::start_from(self, table)
    }
    fn boxed(&self) -> Box<dyn AnySpec> {
        Box::new(self.clone())
    }
    fn equals(&self, other: &dyn AnySpec) -> bool {
        downcast(other) == Some(self)
    }
}

/// The parameters, if they are of this type.
pub(super) fn downcast<S: Spec>(spec: &dyn AnySpec) -> Option<&S> {
    (spec as &dyn Any).downcast_ref()
}

impl Clone for Box<dyn AnySpec> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}
