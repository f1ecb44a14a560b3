//! Tests of the development chain, in one program: it compiles what they share once, and runs them beside each other.

#![cfg(test)]

mod chain;
mod faults_http;
mod faults_results;
mod golden;
mod hostile;
mod profiles;
mod recorded;
mod rules;
mod shape;
mod support;
mod websocket;
