package penstock;

import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.MessageToMessageEncoder;
import java.util.List;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.protocol.Message;
import org.apache.spark.network.protocol.SslMessageEncoder;

/**
 * Spark's encoder for TLS, which retains a message's buffer and lets go of it once too little. The streaming shuffle's
 * writer uses its buffers again and looks whether it may.
 */
public class SealedEncoder extends MessageToMessageEncoder {
  public SealedEncoder() {
    super(Message.class);
  }

  protected void encode(ChannelHandlerContext context, Object message, List out) throws Exception {
    SslMessageEncoder.INSTANCE.encode(context, (Message) message, out);
    if (((Message) message).body() instanceof NettyManagedBuffer) {
      ((Message) message).body().release();
    }
  }
}
