//! Parameters of a kind: one type per kind, behind a trait object where code treats all kinds
//! alike.

use std::any::Any;
use std::fmt::Debug;

use quell_qdisc::control::LearnedState;
use quell_qdisc::policy::Policy;
use quell_qdisc::rate::Rate;

use super::Built;
use crate::error::Error;

/// Parameters of a kind, parsed and checked, which can build the queue.
pub trait Spec: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Builds the queue's parameters and its controller. Some kinds derive defaults from
    /// `rate`, the link's mean rate.
    fn build(&self, rate: Rate) -> Built;

    /// Checks what depends on the link's rate.
    ///
    /// # Errors
    /// If the parameters do not work at this rate.
    fn check_on(&self, _rate: Rate) -> Result<(), Error> {
        Ok(())
    }

    /// Takes this network in place of the one that the words name.
    ///
    /// # Errors
    /// If this kind uses no network, or a network of another shape.
    fn set_policy(&mut self, _policy: Policy) -> Result<(), Error> {
        Err(Error::new("uses no network"))
    }

    /// Continues from what a queue of this kind has learned.
    ///
    /// # Errors
    /// If this kind does not learn, or learns something else.
    fn start_from(&mut self, _state: LearnedState) -> Result<(), Error> {
        Err(Error::new("has no table to start from").remedy("write learnqueue"))
    }
}

/// A [`Spec`] of any kind.
pub(super) trait AnySpec: Debug + Send + Sync + Any {
    fn build(&self, rate: Rate) -> Built;
    fn check_on(&self, rate: Rate) -> Result<(), Error>;
    fn set_policy(&mut self, policy: Policy) -> Result<(), Error>;
    fn start_from(&mut self, state: LearnedState) -> Result<(), Error>;
    fn boxed(&self) -> Box<dyn AnySpec>;
    fn equals(&self, other: &dyn AnySpec) -> bool;
}

impl<S: Spec> AnySpec for S {
    fn build(&self, rate: Rate) -> Built {
        Spec::build(self, rate)
    }
    fn check_on(&self, rate: Rate) -> Result<(), Error> {
        Spec::check_on(self, rate)
    }
    fn set_policy(&mut self, policy: Policy) -> Result<(), Error> {
        Spec::set_policy(self, policy)
    }
    fn start_from(&mut self, state: LearnedState) -> Result<(), Error> {
        Spec::start_from(self, state)
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
