import layers

layers.train()
