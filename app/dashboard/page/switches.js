// Live settings: speed-up, timing and faults, sent as one PATCH each time one of them changes.
export class Switches { constructor() {} async load() {} }
