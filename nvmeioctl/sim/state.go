package sim

// state is everything about a drive but its flash.
type state struct {
	Profile Profile `json:"profile"`
	Options Options `json:"options"`
}

func newState(p Profile, o Options) (*state, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &state{Profile: p, Options: o}, nil
}
