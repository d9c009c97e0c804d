// Package firmware brings a drive to a firmware revision, as a state machine
// that survives the process, a reboot and a power cut.
//
// [Read] gives a drive's [State]; [Plan] compares it with a [Want] and gives
// steps of a transaction, which [Executors] carry out. What a step left is a
// [Record] in the journal; [Judge] compares it with the drive after a reset.
//
// Nothing is activated while the drive runs unless it was asked for and the model
// is on an allow-list: drives have died of it (Micron 7450 boot drives, see the
// table of quirks). The default is to stage: the new revision runs after the next
// reset.
//
// The package sends firmware commands only. It must not reset a subsystem: drives
// have been seen to vanish after that.
package firmware
