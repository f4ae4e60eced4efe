//! End-to-end tests: the built binary as a user runs it.
//!
//! One binary, because linking takes longer than most of the tests. They run side by side: each has its own folder and its
//! own ports, and none changes what belongs to the process (environment, working folder).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first thing that is not as arranged")]

mod agreement;
mod bad_input;
mod brokers;
mod build;
mod built_bundles;
mod bundles;
mod by_hand;
mod canary;
mod capture;
mod cards;
mod cascade;
mod certificates;
mod check;
mod children;
mod clear_login;
mod clips;
mod clock;
mod commands;
mod comparing;
mod detect;
mod documents;
mod engines;
mod events;
mod exports;
mod fleet;
mod fleet_failures;
mod fleet_replicas;
mod follow;
mod follow_stops;
mod hostile_broker;
mod hostile_models;
mod http;
mod http_cameras;
mod http_commands;
mod key_lists;
mod late_rows;
mod leaving;
mod limits;
mod live;
mod masks;
mod metrics;
mod mqtt;
mod mqtt_commands;
mod nats;
mod nats_stores;
mod nothing_lost;
mod onvif;
mod package;
mod pictures;
mod preview;
mod privacy;
mod reload;
mod reload_command;
mod rtsp;
mod running;
mod selftest;
mod settings_bundles;
mod several_models;
mod spool;
mod stopping;
mod thermal;
mod tiles;
mod trace;
mod verify;
mod views;
